package sharedfs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"penstock/lab/cgroup"
	"penstock/lab/chart"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/counters"
	"penstock/lab/proc"
)

// sampleEvery is the interval between two samples of YARN's memory.
const sampleEvery = time.Second

// Memory is what YARN gets on each host, in MiB.
type Memory struct {
	LessMiB  int `json:"less_mib"`  // of containers, with less memory
	MoreMiB  int `json:"more_mib"`  // of containers, with more memory
	OtherMiB int `json:"other_mib"` // besides: of the NodeManager and of the page cache
}

// part is the part of the machine that YARN gets, in place of the paper's virtual machines: some of the CPUs for
// NodeManagers and containers, and memory, page cache included. The file system's servers and clients are outside, as in
// the paper its servers are.
type part struct {
	cores int
	more  bool // memory
}

// containersMiB returns the memory of a host's containers.
func (p part) containersMiB(of Memory) int {
	if p.more {
		return of.MoreMiB
	}
	return of.LessMiB
}

// limit returns the bytes of memory of all hosts together.
func (p part) limit(s Setup) int64 {
	return int64(s.Hosts) * int64(p.containersMiB(s.YARN)+s.YARN.OtherMiB) * mib
}

// cpus returns the CPUs, as a list for taskset.
func (p part) cpus() (string, error) {
	all := proc.ThisMachine().CPUs
	if len(all) < p.cores {
		return "", fmt.Errorf("YARN is to have %d CPUs, and this machine has %d: choose other rows with --rows", p.cores, len(all))
	}
	var list []string
	for _, cpu := range all[:p.cores] {
		list = append(list, strconv.Itoa(cpu))
	}
	return strings.Join(list, ","), nil
}

// partWays are the fastest use of the file system, with one CPU and two, and with less and more memory.
func partWays() (all []way) {
	for _, p := range []part{{1, false}, {1, true}, {2, false}, {2, true}} {
		all = append(all, way{name: "yarn-" + p.String(), shared: true, near: true, merge: true, part: p, about: "as shared-near, and YARN has a part of the machine"})
	}
	return all
}

func (p part) String() string {
	if p.cores == 1 {
		return "1-core-" + p.memory()
	}
	return fmt.Sprintf("%d-cores-%s", p.cores, p.memory())
}

func (p part) memory() string {
	if p.more {
		return "more"
	}
	return "less"
}

// MemorySample is the memory of NodeManagers and containers at an instant.
type MemorySample struct {
	AtS        float64 `json:"at_s"` // since the job was submitted
	ResidentMB float64 `json:"resident_mb"`
	CacheMB    float64 `json:"cache_mb"` // files in the page cache
}

// sampler samples the memory of a group.
type sampler struct {
	stop    context.CancelFunc
	stopped chan error
	group   *cgroup.Memory
	samples []MemorySample
}

// sample begins to sample the group's memory; without a group it does nothing.
func sample(group *cgroup.Memory) *sampler {
	s := &sampler{group: group, stop: func() {}, stopped: make(chan error, 1)}
	if group == nil {
		s.stopped <- nil
		return s
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	begin := time.Now()
	go func() {
		s.stopped <- counters.Every(ctx, sampleEvery, func() error {
			use, err := group.Use()
			s.samples = append(s.samples, MemorySample{round(time.Since(begin).Seconds()), round(float64(use.Resident) / megabyte), round(float64(use.Cache) / megabyte)})
			return err
		})
	}()
	return s
}

// end ends the sampling and adds the result to a job. If the job has failed, the error also says how many processes the
// kernel has killed because of the group's limit.
func (s *sampler) end(j *Job, failed error) error {
	s.stop()
	err := <-s.stopped
	if s.group == nil {
		return errors.Join(failed, err)
	}
	use, at := s.group.Use()
	if failed != nil && use.Killed > 0 {
		failed = fmt.Errorf("%w; the kernel has killed %d processes because YARN's memory was used up", failed, use.Killed)
	}
	j.Memory, j.Killed = s.samples, use.Killed
	return errors.Join(failed, err, at)
}

// resident returns the largest memory of a job's processes, without the page cache.
func resident(j Job) (most float64) {
	for _, s := range j.Memory {
		most = max(most, s.ResidentMB)
	}
	return most
}

// memoryChart returns the memory over time, a panel for each part; nil if it was not measured.
func (r Result) memoryChart() []chart.Chart {
	c := chart.Lines{Title: fmt.Sprintf("Memory of YARN during TeraSort of %d MiB, all hosts together", r.Setup.largest()), Columns: 2, Width: 330, Height: 190, Shared: true}
	for _, w := range partWays() {
		panel := chart.Panel{Title: fmt.Sprintf("%s, at most %.0f MB", w.name, float64(w.part.limit(r.Setup))/megabyte), X: "s", Y: "MB"}
		for _, t := range r.Of(Gluster + "-" + w.name) {
			for _, j := range t.Jobs {
				own, all := chart.Line{Name: "processes", Colour: chart.Blue}, chart.Line{Name: "with page cache", Colour: chart.Orange}
				for _, s := range j.Memory {
					own.Points = append(own.Points, chart.Point{X: s.AtS, Y: s.ResidentMB})
					all.Points = append(all.Points, chart.Point{X: s.AtS, Y: s.ResidentMB + s.CacheMB})
				}
				if len(own.Points) > 0 {
					panel.Lines = append(panel.Lines, own, all)
				}
			}
		}
		if len(panel.Lines) > 0 {
			c.Panels = append(c.Panels, panel)
		}
	}
	if len(c.Panels) == 0 {
		return nil
	}
	return []chart.Chart{c}
}

// partClaims returns the published figures of YARN with a part of the machine.
func (r Result) partClaims() (all []claims.Claim) {
	size := r.Setup.largest()
	row := func(p part) string { return Gluster + "-yarn-" + p.String() }
	name := fmt.Sprintf("%s, TeraSort of %d MiB, ", Gluster, size)
	all = claims.Add(all, r.runTimes(name, Gluster, partWays(), size)...)
	for _, more := range []bool{false, true} {
		memory := part{1, more}.memory()
		all = claims.Add(all, claims.Of(name+"YARN with two cores: run time / with one, with "+memory+" memory", "ratio",
			r.Pairs(row(part{2, more}), row(part{1, more}), ratio(size, seconds))...).From(paper))
	}
	for i, cores := range []string{"one core", "two cores"} {
		all = claims.Add(all, claims.Of(name+"YARN with more memory: run time / with less, with "+cores, "ratio",
			r.Pairs(row(part{i + 1, true}), row(part{i + 1, false}), ratio(size, seconds))...).From(paper))
	}
	for _, w := range partWays() {
		all = claims.Add(all, claims.Of(name+w.name+": most memory of YARN's processes", "MB", r.Values(Gluster+"-"+w.name, job(size, resident))...).From(paper))
	}
	return all
}
