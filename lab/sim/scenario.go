package sim

import (
	"fmt"
	"time"

	"penstock/core/shortest"
	"penstock/lab/disk"
	"penstock/settings"
)

// Bounds on a scenario.
const (
	MaxNodes        = 100_000
	MaxApplications = 10_000
	maxLength       = 24 * time.Hour
	maxFile         = 1 << 20
	maxFlows        = 20_000_000 // memory is allocated for every application on every node
	maxDatanodes    = 16         // per machine
	maxChanges      = 10_000     // events, and changes of applications between on and off
)

// Scenario is a scenario to play, from a YAML file.
type Scenario struct {
	Title string `yaml:"title"`
	// Length is the length of the run. Its first part, Settle, is shown but not judged.
	Length settings.Duration `yaml:"length"`
	Settle settings.Duration `yaml:"settle"`
	// Window is the time over which shares are computed; default 1s, at least 100ms.
	Window settings.Duration `yaml:"window"`

	Nodes        []NodeSpec        `yaml:"nodes"`
	Applications []ApplicationSpec `yaml:"applications"`
	// Jobs and Traces describe MapReduce jobs. A run with jobs ends with the last job, is played in
	// several ways, and is judged by slowdowns instead of shares.
	Jobs      []JobSpec     `yaml:"jobs"`
	Traces    []TraceSpec   `yaml:"traces"`
	MapReduce MapReduceSpec `yaml:"mapreduce"`
	Exchange  ExchangeSpec  `yaml:"exchange"`
	Events    []EventSpec   `yaml:"events"`
	Expect    ExpectSpec    `yaml:"expect"`

	dir string // the file's folder
}

// NodeSpec describes machines of one kind, each with one device.
type NodeSpec struct {
	Count int `yaml:"count"` // default 1
	// Datanodes is the number of virtual datanodes that share the machine's disk, 1 to 16; default
	// 1. Each datanode has its own number in the scenario. Scheduler is "datanode" for a scheduler
	// in each virtual datanode, or "device" (default) for a single scheduler.
	Datanodes int    `yaml:"datanodes"`
	Scheduler string `yaml:"scheduler"`
	// Disk is hdd, ssd or nvme. The default Rate, in bytes per second, is the rate of a real disk:
	// 150 MB, 500 MB, 3 GB.
	Disk    string         `yaml:"disk"`
	Rate    settings.Bytes `yaml:"rate"`
	Quantum settings.Bytes `yaml:"quantum"` // default 2MiB for hdd, 1MiB for ssd and nvme
	// Profile is set if the device's costs are known, as by `penstock profile`. Otherwise the scheduler learns them
	// from the load.
	Profile bool `yaml:"profile"`
	// Algorithm is the scheduler; default sfqd2. Depth is the initial depth; default 2 for hdd, 8
	// for ssd and nvme.
	Algorithm string `yaml:"algorithm"`
	Depth     int    `yaml:"depth"`
	// Seek is what the scheduler assumes of a seek's time; default 0. The daemon assumes one for each hard disk.
	Seek settings.Duration `yaml:"seek"`
}

// The values of NodeSpec.Scheduler.
const (
	eachDatanode = "datanode"
	eachDevice   = "device"
)

// ApplicationSpec describes applications of one kind. Each application wants as much service as
// possible on its nodes, either all the time or with pauses.
type ApplicationSpec struct {
	Name   string  `yaml:"name"`
	Count  int     `yaml:"count"`  // default 1
	Weight float64 `yaml:"weight"` // default 1
	// On contains the numbers of the applications' nodes. Alternatively, Spread is the fraction of
	// all nodes, 0 to 1, that is drawn at random for each application; at least one node is drawn.
	// With neither, the applications are on all nodes.
	On     []int   `yaml:"on"`
	Spread float64 `yaml:"spread"`
	IO     string  `yaml:"io"` // read (default) or write
	// Begin is the time of the application's start. From then on, the application is alternately on
	// for OnFor and off for OffFor. Without OnFor and OffFor it stays on to the end.
	Begin  settings.Duration `yaml:"begin"`
	OnFor  settings.Duration `yaml:"on_for"`
	OffFor settings.Duration `yaml:"off_for"`
	// Reserve, Limit, TotalReserve, TotalLimit and Latency are those of a policy's rule for each of the applications. The
	// order of the entries is that of the rules.
	Reserve      settings.Reserve  `yaml:"reserve"`
	Limit        settings.Bytes    `yaml:"limit"`
	TotalReserve settings.Bytes    `yaml:"total_reserve"`
	TotalLimit   settings.Bytes    `yaml:"total_limit"`
	Latency      settings.Duration `yaml:"latency"`
	// Move is the time after which an application's tasks move to other nodes, again and again; 0: they stay. With On, all
	// numbers grow by their count; with Spread, nodes are drawn again.
	Move settings.Duration `yaml:"move"`
	// Size is set for an application that reads this many bytes, up to 128KiB, at a random place of the disk, waits for Pause
	// (default 20ms), and reads again, on each node.
	Size  settings.Bytes    `yaml:"size"`
	Pause settings.Duration `yaml:"pause"`
}

func (a *ApplicationSpec) op() disk.Op {
	if a.IO == "write" {
		return disk.Write
	}
	return disk.Read
}

// nameOf returns the name of the n-th application.
func (a *ApplicationSpec) nameOf(n int) string {
	if a.Count <= 1 {
		return a.Name
	}
	return fmt.Sprintf("%s-%d", a.Name, n+1)
}

// ExchangeSpec describes the exchange of messages between nodes and broker.
type ExchangeSpec struct {
	Period settings.Duration `yaml:"period"` // default 1s
	Off    bool              `yaml:"off"`    // local shares only
	// Rule is how nodes use totals: parts (default), as in Penstock; or dsfq, for comparison, with
	// delays as in DSFQ and IBIS. dsfq requires applications that are always on.
	Rule     string            `yaml:"rule"`
	DelayMin settings.Duration `yaml:"delay_min"`
	DelayMax settings.Duration `yaml:"delay_max"`
	Loss     float64           `yaml:"loss"` // fraction of the messages, 0 to 0.9
	// Session is the length of the leading broker's session, 1s to 5m. If it is set, a standby
	// broker takes over when the session of a failed broker has expired.
	Session settings.Duration `yaml:"session"`
}

func (s *Scenario) exchange() Exchange {
	e := s.Exchange
	x := Exchange{Period: time.Duration(e.Period), DelayMin: time.Duration(e.DelayMin),
		DelayMax: time.Duration(max(e.DelayMin, e.DelayMax)), Loss: e.Loss, Rule: e.Rule, Session: time.Duration(e.Session)}
	if e.Off {
		x.Period = 0
	}
	return x
}

// EventSpec is an event.
type EventSpec struct {
	At settings.Duration `yaml:"at"`
	// Broker is "down" to stop the broker, or "up" to start it without any memory.
	Broker string `yaml:"broker"`
	// Leave and Join are numbers of nodes. Leave disconnects a node from everything; Join connects it
	// again.
	Leave *int `yaml:"leave"`
	Join  *int `yaml:"join"`
	// Application is the application that gets another Weight.
	Application string  `yaml:"application"`
	Weight      float64 `yaml:"weight"`
	// Slow contains numbers of nodes whose disks get the rate Factor times the rate at the beginning.
	Slow   []int   `yaml:"slow"`
	Factor float64 `yaml:"factor"`
}

func (e EventSpec) String() string {
	switch {
	case e.Broker != "":
		return "broker " + e.Broker
	case e.Leave != nil:
		return fmt.Sprintf("node %d leaves", *e.Leave)
	case e.Join != nil:
		return fmt.Sprintf("node %d joins", *e.Join)
	case e.Slow != nil:
		return fmt.Sprintf("the rate of %d disks is %g times the first one", len(e.Slow), e.Factor)
	}
	return fmt.Sprintf("%s has weight %g", e.Application, e.Weight)
}

// ExpectSpec contains the expectations of the run.
type ExpectSpec struct {
	// Misplaced is the largest fraction of the service, 0 to 1, that may go to applications without
	// an entitlement to it. It applies to the median over the windows after Settle, except the
	// windows within Recovery after an event.
	Misplaced float64 `yaml:"misplaced"`
	// Recovery is the time after an event in which windows are not judged; default 3s.
	Recovery settings.Duration `yaml:"recovery"`
	// AtLeast makes Misplaced a lower bound, for scenarios that show faults without Penstock.
	AtLeast bool `yaml:"at_least"`
	// Converged is the longest time that shares may take to be right again after a change. Once it
	// has passed, the misplaced fraction of each window up to the next change must be at most
	// Misplaced. 0: not checked. Its resolution is Window.
	Converged settings.Duration `yaml:"converged"`
	// Spans are parts of the run with their own bounds on the median.
	Spans []SpanSpec `yaml:"spans"`
	// Better contains the differences by which the jobs' average slowdown with the broker's totals
	// must at least be below their average slowdowns with local shares and with FIFO. A difference of
	// 0.1 means, for example, 1.8 instead of 1.9.
	Better BetterSpec `yaml:"better"`
	// Applications are expectations of single applications.
	Applications []CheckSpec `yaml:"applications"`
	// Equal contains expectations of the jobs played in the way equal; alone must be played too.
	Equal EqualSpec `yaml:"equal"`
	// Deadline contains expectations of jobs with deadlines, played in the way deadline.
	Deadline DeadlineSpec `yaml:"deadline"`
}

// EqualSpec contains expectations of equal slowdowns; 0: not checked. Slowdowns are means over the jobs of a kind. A
// difference of 0.05 means, for example, 1.60 and 1.65.
type EqualSpec struct {
	// Within is the largest difference of the slowdowns of two kinds.
	Within float64 `yaml:"within"`
	// Better is the least difference by which the largest slowdown must be below the largest slowdown coordinated.
	Better float64 `yaml:"better"`
	// Estimate is the largest error of the broker's estimate of a job's slowdown, relative to the slowdown.
	Estimate float64 `yaml:"estimate"`
	// From and To make the run end at To, and slowdowns are the bytes that an application moves from From to To, alone divided by
	// beside others. This is for large clusters, where the run time of a job is that of its slowest task.
	From settings.Duration `yaml:"from"`
	To   settings.Duration `yaml:"to"`
}

// SpanSpec is a part of the run.
type SpanSpec struct {
	Name string            `yaml:"name"`
	From settings.Duration `yaml:"from"`
	To   settings.Duration `yaml:"to"`
	// Most and Least bound the misplaced fraction, 0 to 1; 0: not checked.
	Most  float64 `yaml:"most"`
	Least float64 `yaml:"least"`
}

// BetterSpec contains differences of average slowdowns; 0: not checked.
type BetterSpec struct {
	Local float64 `yaml:"than_local"`
	FIFO  float64 `yaml:"than_fifo"`
	// Shortest and Sized are the least parts, 0 to 1, by which the mean run time in these ways must be below that of
	// coordinated.
	Shortest float64 `yaml:"shortest"`
	Sized    float64 `yaml:"sized"`
}

// JobSpec describes MapReduce jobs of one kind.
type JobSpec struct {
	Name   string            `yaml:"name"`
	Count  int               `yaml:"count"`  // default 1
	At     settings.Duration `yaml:"at"`     // when the first one is submitted
	Every  settings.Duration `yaml:"every"`  // time between the submissions of two jobs
	Weight float64           `yaml:"weight"` // default 1
	// Application is the application that all these jobs belong to, with one weight in total.
	// Without it, each job is an application.
	Application string `yaml:"application"`
	// Queue is the queue in which the jobs wait for slots. Without it, each application has its own
	// queue.
	Queue string `yaml:"queue"`
	// Input, Shuffle and Output are the bytes of the whole job. The input is on the nodes On, or on
	// a random fraction Spread of all nodes, or on all nodes. A job without input has Maps maps,
	// which write the output.
	Input   settings.Bytes `yaml:"input"`
	Shuffle settings.Bytes `yaml:"shuffle"`
	Output  settings.Bytes `yaml:"output"`
	On      []int          `yaml:"on"`
	Spread  float64        `yaml:"spread"`
	Maps    int            `yaml:"maps"`    // without input only
	Reduces int            `yaml:"reduces"` // 0: one for each GiB of the larger of shuffle and output, rounded up; none without shuffle
	// Slots bounds the running tasks of the job's queue; 0: no bound.
	Slots int `yaml:"slots"`
	// Rate is the most bytes per second that a task's processor can read from or write to HDFS. 0:
	// no bound.
	Rate settings.Bytes `yaml:"rate"`
	// Background jobs do not count in the slowdowns, and the run does not wait for their end.
	Background bool `yaml:"background"`
	// Deadline is that of a policy's rule for each of these jobs, as a time after the submission. It counts in the way deadline only.
	Deadline settings.Duration `yaml:"deadline"`
}

// TraceSpec describes jobs from a file in SWIM's format.
type TraceSpec struct {
	Name   string  `yaml:"name"`
	File   string  `yaml:"file"`   // in the scenario's folder; `penstock-lab sim --trace` replaces it
	Weight float64 `yaml:"weight"` // default 1
	// Application and Queue are as in JobSpec.
	Application string `yaml:"application"`
	Queue       string `yaml:"queue"`
	// Jobs is the number of successive jobs to play. The first job is drawn at random; all jobs
	// must be submitted within half of the run's length. 0: all jobs, up to the bound.
	Jobs int `yaml:"jobs"`
	// Machines is the number of machines of the trace's cluster. Job sizes are multiplied by the
	// scenario's number of machines and divided by Machines, as in SWIM. 0: sizes are not changed.
	Machines int `yaml:"machines"`
	// Least is the minimum map input of a job after this scaling. With it, shuffle and output are
	// at least 1 KiB, so each job has maps and a reduce. SWIM uses 64MiB. 0: no minimum.
	Least settings.Bytes `yaml:"least"`
	// Bytes and Time are factors for sizes and times; default 1.
	Bytes float64        `yaml:"bytes"`
	Time  float64        `yaml:"time"`
	Slots int            `yaml:"slots"`
	Rate  settings.Bytes `yaml:"rate"`
}

func (m *MapReduceSpec) slices() shortest.Slices {
	return shortest.Slices{Percent: m.Slices, Floor: m.Floor}
}

// MapReduceSpec describes how jobs run.
type MapReduceSpec struct {
	Slots       int               `yaml:"slots"`       // tasks that run at the same time on a node; default 8
	Block       settings.Bytes    `yaml:"block"`       // default 128MiB
	Replication int               `yaml:"replication"` // default 3, at most the number of nodes
	Start       settings.Duration `yaml:"start"`       // time from a task's start to its first I/O; default 1s
	// Order selects the next task. fair (default) takes the queue with the fewest running tasks
	// and, in this queue, the job with the fewest. fifo takes the job that was submitted first.
	Order string `yaml:"order"`
	// Slices and Floor, in percent, divide the disks among the jobs in the ways shortest and sized, as in a policy's
	// queue with "order: shortest". Each job must be an application of its own. Default 90 and 1.
	Slices []int `yaml:"slices"`
	Floor  int   `yaml:"floor"`
	// Play lists the ways to play the jobs: alone, fifo, local and coordinated, which are the default; shortest,
	// where the jobs are ordered by their remaining work as their progress shows it; and sized, where they state
	// their sizes.
	// Without alone, the result has run times and no slowdowns.
	Play []string `yaml:"play"`
}
