package together

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"penstock/core/shortest"
	"penstock/lab/contest"
	"penstock/lab/experiment"
	"penstock/lab/hadoop"
)

// Queue is the queue of YARN and of the policy in which all jobs are.
const Queue = "root.batch"

// Bounds of a request.
const (
	MaxRuns  = 100
	MinBytes = 16 * contest.MiB
	MaxBytes = 4096 * contest.MiB
)

// Job is one of the jobs that share the disks.
type Job struct {
	Name    string      `json:"name"` // unique
	Kind    hadoop.Kind `json:"kind"`
	Bytes   int64       `json:"bytes"` // of the input; of TeraGen: of the output
	Maps    int         `json:"maps"`  // also the number of input files
	Reduces int         `json:"reduces,omitempty"`
	// WordBytes is the mean length of a word of a text. With longer words, WordCount needs less CPU time for
	// the same bytes.
	WordBytes int    `json:"word_bytes,omitempty"`
	SortMB    int    `json:"sort_mb,omitempty"`
	CPUs      string `json:"cpus,omitempty"` // list for taskset; "": all
}

// vocabulary is the number of distinct words of a text.
const vocabulary = 2000

// Work returns the job's description for package contest.
func (j Job) Work() contest.Work {
	w := contest.Work{Kind: j.Kind, InputBytes: j.Bytes, Reduces: j.Reduces, SortMB: j.SortMB, CPUs: j.CPUs, Queue: Queue}
	switch j.Kind {
	case hadoop.TeraGen:
		w.Maps = j.Maps
	case hadoop.TeraSort:
		w.Files = j.Maps
	default:
		w.Files, w.WordBytes, w.Vocabulary = j.Maps, j.WordBytes, vocabulary
	}
	return w
}

func (j Job) input() string { return "/input/" + j.Name }

// Setup is everything that may change a figure.
type Setup struct {
	Machine experiment.Machine `json:"machine"`
	Jobs    []Job              `json:"jobs"` // the shortest first
	Disk    contest.Disk       `json:"disk"`
	Kernel  contest.Kernel     `json:"kernel"`
	Device  contest.Device     `json:"device"`
	// Intermediate puts intermediate data on the contested disks, too.
	Intermediate bool `json:"intermediate"`
	// ClientsWeight is the weight of the jobs' submitters and application masters, which read and write
	// small files.
	ClientsWeight int    `json:"clients_weight"`
	BlockBytes    int64  `json:"block_bytes"`
	Hadoop        string `json:"hadoop"`
}

// NewSetup returns a set-up without jobs for a kind of disk.
func NewSetup(kind string) (Setup, error) {
	d, err := contest.NewDisk(kind)
	if err != nil {
		return Setup{}, err
	}
	return Setup{Machine: experiment.ThisMachine(), Disk: d, Kernel: contest.DefaultKernel(), Device: contest.NewDevice(kind),
		ClientsWeight: 32, BlockBytes: 8 * contest.MiB, Hadoop: hadoop.DefaultVersion}, nil
}

// Scale multiplies the sizes of all jobs.
func (s *Setup) Scale(by float64) {
	s.Jobs = slices.Clone(s.Jobs)
	for i := range s.Jobs {
		j := &s.Jobs[i]
		unit := int64(contest.MiB * max(1, j.Maps)) // each file has the same number of whole MiB
		j.Bytes = max(1, int64(float64(j.Bytes)*by)/unit) * unit
	}
}

// Validate returns an error for a set-up that cannot be measured.
func (s Setup) Validate() error {
	if len(s.Jobs) == 0 {
		return errors.New("the set-up has no jobs")
	}
	for _, j := range s.Jobs {
		if j.Bytes < MinBytes || j.Bytes > MaxBytes {
			return fmt.Errorf("%s has %d MiB: use %d to %d", j.Name, j.Bytes/contest.MiB, MinBytes/contest.MiB, MaxBytes/contest.MiB)
		}
	}
	if s.Machine.CPUs < 2 {
		return errors.New("this machine has fewer than two CPUs: the jobs would wait for the CPU more than for the disks; use a machine with two or more")
	}
	if err := s.Disk.Validate(); err != nil {
		return err
	}
	return hadoop.CheckVersion(s.Hadoop)
}

// Job returns the job with the given name.
func (s Setup) Job(name string) Job {
	i := slices.IndexFunc(s.Jobs, func(j Job) bool { return j.Name == name })
	if i < 0 {
		return Job{}
	}
	return s.Jobs[i]
}

// KernelSchedulers are the kernel's I/O schedulers to compare.
var KernelSchedulers = []string{"none", "mq-deadline", "bfq"}

// Way is a way to divide the disks.
type Way struct {
	Kernel   string // I/O scheduler of the disks; "": the set-up's
	Governed bool   // broker and node daemon run
	Policy   string // the words of the queue in the policy, such as "order: shortest"
	// Sized gives each job the tag io.size with the bytes that it will move.
	Sized bool
	// Caps are slices of the disks' rates. Each job's containers are in a cgroup whose reads and writes of
	// each disk are capped at the job's slice. The caps change when a job ends.
	Caps shortest.Slices
}

// Row is a set of jobs and a way to divide the disks.
type Row struct {
	Name string
	Jobs []string // names; nil: all jobs of the set-up
	Way  Way
}

// of returns the row's jobs.
func (r Row) of(s Setup) (jobs []Job) {
	for _, j := range s.Jobs {
		if r.Jobs == nil || slices.Contains(r.Jobs, j.Name) {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// Alone returns the rows of each job alone, without Penstock.
func Alone(s Setup) (rows []Row) {
	for _, j := range s.Jobs {
		rows = append(rows, Row{Name: AlonePrefix + j.Name, Jobs: []string{j.Name}})
	}
	return rows
}

// AlonePrefix is the beginning of the names of the rows of Alone.
const AlonePrefix = "alone-"

// SelectRows returns those rows whose names match one of the patterns. Without patterns it returns all rows.
func SelectRows(all []Row, patterns []string) ([]Row, error) {
	if len(patterns) == 0 {
		return all, nil
	}
	wanted := map[string]bool{}
	for _, p := range patterns {
		found := false
		for _, r := range all {
			ok, err := path.Match(p, r.Name)
			if err != nil {
				return nil, fmt.Errorf("pattern %q: %w", p, err)
			}
			if ok {
				found, wanted[r.Name] = true, true
			}
		}
		if !found {
			var names []string
			for _, r := range all {
				names = append(names, r.Name)
			}
			return nil, fmt.Errorf("no row %q: the rows are %s; * matches any part of a name", p, strings.Join(names, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(r Row) bool { return !wanted[r.Name] }), nil
}
