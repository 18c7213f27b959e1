package soak

import (
	"fmt"
	"maps"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/figures"
)

// Result is the result of a campaign.
type Result struct {
	Setup    Setup    `json:"setup"`
	Build    string   `json:"build"`
	Good     bool     `json:"good"`
	Findings []string `json:"findings"` // why the campaign is not good
	Seconds  float64  `json:"s"`        // of all stretches that ended
	Stretch  int      `json:"stretches"`

	Kills      int `json:"kills"`
	DaemonKill int `json:"daemon_kills"`
	NodeKill   int `json:"datanode_kills"`

	Kinds  []KindResult  `json:"kinds"`
	Loads  []LoadResult  `json:"loads"`
	Files  FilesResult   `json:"files"`
	Growth []Growth      `json:"growth"`
	Orphan OrphansResult `json:"orphans"`
	// TaskWaits and Phases are empty except in a campaign of kills in phases.
	TaskWaits TaskWaits     `json:"task_waits"`
	Phases    map[Phase]int `json:"phases,omitempty"` // kills in each
	// GateWaits counts the waits at gates during all faults.
	GateWaits int64 `json:"gate_waits"`
	ProbeOps  int   `json:"probe_ops"`

	Outcomes []Outcome      `json:"outcomes"`
	Rounds   []Round        `json:"rounds"`
	Endings  []Ending       `json:"endings"`
	Claims   []claims.Claim `json:"claims"`
}

// KindResult holds the results of one kind of fault. Stall is about the probe's longest operation
// during each fault, and Took about the time until the former state was restored, both in
// milliseconds.
type KindResult struct {
	Kind   Kind   `json:"kind"`
	Count  int    `json:"count"`
	Stall  Spread `json:"stall_ms"`
	Took   Spread `json:"took_ms"`
	Failed int    `json:"failed_operations"`
	// OrphanMS is the agents' longest wait without a daemon.
	OrphanMS float64 `json:"orphan_ms"`
}

// Spread holds quantiles of a distribution, by nearest rank.
type Spread struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

func spread(all []float64) Spread {
	if len(all) == 0 {
		return Spread{}
	}
	return Spread{figures.Quantile(all, 0.5), figures.Quantile(all, 0.99), figures.Quantile(all, 1)}
}

// OrphansResult holds the exact figures of the waits without a daemon, over the kills and stops of
// the daemon.
type OrphansResult struct {
	Faults int    `json:"faults"` // of the daemon
	Held   int    `json:"held"`   // faults in which a thread waited
	Waits  int64  `json:"waits"`
	MS     Spread `json:"ms"` // the longest wait of each fault in which a thread waited
	// Elsewhere counts the waits without a daemon during other faults, in which a living daemon was
	// silent for a second.
	Elsewhere   int64   `json:"elsewhere"`
	ElsewhereMS float64 `json:"elsewhere_ms"`
}

// LoadResult holds the results of one kind of job.
type LoadResult struct {
	Load    string  `json:"load"`
	Rounds  int     `json:"rounds"`
	Failed  int     `json:"failed_jobs"`
	Wrong   int     `json:"wrong"`
	Seconds float64 `json:"median_s"`
}

// FilesResult holds the results of the campaign's own files.
type FilesResult struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	Again int   `json:"again"`
}

// Growth is the growth of a process's resources during a life, which ends when the process is
// killed. It is the slope of a least-squares fit with one slope for all lives and an offset for
// each life.
type Growth struct {
	Process       string  `json:"process"`
	Lives         int     `json:"lives"`
	LongestS      float64 `json:"longest_s"`
	RSSKiBMax     int64   `json:"rss_kib_max"`
	RSSKiBPerMin  float64 `json:"rss_kib_per_min"`
	FDsMax        int     `json:"fds_max"`
	FDsPerMin     float64 `json:"fds_per_min"`
	ThreadsMax    int     `json:"threads_max"`
	ThreadsPerMin float64 `json:"threads_per_min"`
}

// Only the time after the age settled is part of a process's growth, because initial allocations
// are not growth. After some seconds of load, a daemon has allocated its memory.
const settled = 10.0 // seconds

func growth(process string, all []Usage) Growth {
	g := Growth{Process: process}
	lives := map[int][]Usage{} // by PID; without the time before settled
	for _, u := range all {
		if u.Process != process {
			continue
		}
		g.RSSKiBMax, g.FDsMax, g.ThreadsMax = max(g.RSSKiBMax, u.RSSKiB), max(g.FDsMax, u.FDs), max(g.ThreadsMax, u.Threads)
		g.LongestS = max(g.LongestS, u.AgeS)
		life := lives[u.PID]
		if u.AgeS >= settled {
			life = append(life, u)
		}
		lives[u.PID] = life
	}
	g.Lives = len(lives)
	slope := func(value func(Usage) float64) float64 {
		var ages, values []float64 // each minus the mean of its life
		for _, pid := range slices.Sorted(maps.Keys(lives)) {
			var x, y []float64
			for _, u := range lives[pid] {
				x, y = append(x, u.AgeS), append(y, value(u))
			}
			floats.AddConst(-stat.Mean(x, nil), x)
			floats.AddConst(-stat.Mean(y, nil), y)
			ages, values = append(ages, x...), append(values, y...)
		}
		if along := floats.Dot(ages, ages); along > 0 {
			return 60 * floats.Dot(ages, values) / along
		}
		return 0
	}
	g.RSSKiBPerMin = slope(func(u Usage) float64 { return float64(u.RSSKiB) })
	g.FDsPerMin = slope(func(u Usage) float64 { return float64(u.FDs) })
	g.ThreadsPerMin = slope(func(u Usage) float64 { return float64(u.Threads) })
	return g
}

// Bounds of a good campaign. The figures are reported exactly; these bounds only distinguish a
// defect from a busy machine.
const (
	// orphanMax: gates must open a second after the last sign of life.
	orphanMax = 2000.0 // ms
	// killMax: an agent notices a kill at once, because the connection ends, so no thread waits
	// until that second is over.
	killMax = 1000.0 // ms
	// stallMax: the longest delay that a dead daemon may cause for a client, including the delay by
	// a busy machine.
	stallMax = 5000.0 // ms
	// rssKiBMax and fdsMax bound the daemon, for any number of streams.
	rssKiBMax = 200 << 10
	fdsMax    = 1000
)

// Summarise judges the journal's content.
func Summarise(s Setup, build string, j *Journal) Result {
	r := Result{Setup: s, Build: build, Outcomes: j.outcomes, Rounds: j.rounds, Endings: j.endings, Stretch: len(j.endings),
		Findings: append([]string{}, j.findings...), Phases: map[Phase]int{}}
	var usages []Usage
	byKind := map[Kind][]Outcome{}
	for _, o := range j.outcomes {
		byKind[o.Kind] = append(byKind[o.Kind], o)
		usages = append(usages, o.Usage...)
		r.GateWaits += o.GateWaits
		if o.Phase != "" {
			r.Phases[o.Phase]++
		}
	}
	for _, k := range kinds {
		r.Kinds = append(r.Kinds, kindResult(k, byKind[k]))
	}
	r.DaemonKill, r.NodeKill = len(byKind[KillDaemon]), len(byKind[KillDataNode])
	r.Kills = r.DaemonKill + r.NodeKill
	r.Orphan = orphans(j.outcomes)
	clean := false
	for _, e := range j.endings {
		r.Seconds += e.Seconds
		r.Files.Files, r.Files.Bytes, r.Files.Again = r.Files.Files+e.Files, r.Files.Bytes+e.FileBytes, r.Files.Again+e.Again
		r.ProbeOps += e.ProbeOps
		usages = append(usages, e.Usage...)
		r.TaskWaits.merge(e.TaskWaits)
		clean = e.Clean && e.Last == len(j.outcomes)
	}
	for _, o := range j.rounds {
		r.TaskWaits.merge(o.TaskWaits)
	}
	for _, process := range []string{"daemon", "datanode0", "datanode1"} {
		r.Growth = append(r.Growth, growth(process, usages))
	}
	for _, load := range []string{"terasort", "testdfsio"} {
		if l := loadResult(load, j.rounds); l.Rounds > 0 {
			r.Loads = append(r.Loads, l)
		}
	}
	r.judge(clean)
	return r
}

func (r *Result) judge(clean bool) {
	find := func(format string, args ...any) { r.Findings = append(r.Findings, fmt.Sprintf(format, args...)) }
	if r.Kills < r.Setup.Kills {
		find("%d of %d kills were done", r.Kills, r.Setup.Kills)
	}
	if !clean && len(r.Findings) == 0 {
		find("some checks at the end were not made")
	}
	if r.Orphan.MS.Max > orphanMax {
		find("a wait at a gate lasted %.0f ms without a daemon; gates must open within 1000 ms", r.Orphan.MS.Max)
	}
	if r.Setup.Phases {
		if longest := max(r.Orphan.MS.Max, r.TaskWaits.LongMS); longest > killMax {
			find("a thread waited %.0f ms for a daemon that was killed; want %.0f ms at most", longest, killMax)
		}
		if r.TaskWaits.Tasks == 0 {
			find("no task has reported its waits")
		}
		for _, p := range phases {
			if r.Kills >= 40 && r.Phases[p] == 0 {
				find("no kill hit the phase %s of a TeraSort", p)
			}
		}
	}
	calm := r.Kinds[slices.Index(kinds, Calm)].Stall.Max
	for _, k := range r.Kinds {
		ours := k.Kind != KillDataNode && k.Kind != StopDataNode && k.Kind != SlowDisk
		if ours && k.Kind != Calm && k.Stall.Max > max(stallMax, 2*calm) {
			find("%s: an operation took %.0f ms; without a fault the longest took %.0f", k.Kind, k.Stall.Max, calm)
		}
		if ours && k.Failed > 0 {
			find("%s: %d operations of the probe failed", k.Kind, k.Failed)
		}
	}
	for _, g := range r.Growth {
		if g.Process == "daemon" && (g.RSSKiBMax > rssKiBMax || g.FDsMax > fdsMax) {
			find("the daemon used %d MiB and %d descriptors", g.RSSKiBMax>>10, g.FDsMax)
		}
	}
	r.Good = len(r.Findings) == 0
}

func kindResult(k Kind, all []Outcome) KindResult {
	r := KindResult{Kind: k, Count: len(all)}
	var stalls, took []float64
	for _, o := range all {
		stalls, took = append(stalls, o.StallMS), append(took, o.TookMS)
		r.Failed += len(o.Failed)
		r.OrphanMS = max(r.OrphanMS, o.OrphanMS)
	}
	r.Stall, r.Took = spread(stalls), spread(took)
	return r
}

func orphans(all []Outcome) (r OrphansResult) {
	var longest []float64
	for _, o := range all {
		if o.Kind != KillDaemon && o.Kind != StopDaemon {
			r.Elsewhere += o.Orphans
			r.ElsewhereMS = max(r.ElsewhereMS, o.OrphanMS)
			continue
		}
		r.Faults++
		r.Waits += o.Orphans
		if o.Orphans > 0 {
			r.Held++
			longest = append(longest, o.OrphanMS)
		}
	}
	r.MS = spread(longest)
	return r
}

func loadResult(load string, rounds []Round) LoadResult {
	r := LoadResult{Load: load}
	var seconds []float64
	for _, o := range rounds {
		if o.Load != load {
			continue
		}
		r.Rounds++
		r.Failed += len(o.Failed)
		if o.Wrong != "" {
			r.Wrong++
		}
		seconds = append(seconds, o.Seconds)
	}
	r.Seconds = spread(seconds).Median
	return r
}
