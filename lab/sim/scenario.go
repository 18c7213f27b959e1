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
	// Algorithm is the scheduler; default sfqd2. Depth is the initial depth; default 2 for hdd, 8
	// for ssd and nvme.
	Algorithm string `yaml:"algorithm"`
	Depth     int    `yaml:"depth"`
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
}

func (e EventSpec) String() string {
	switch {
	case e.Broker != "":
		return "broker " + e.Broker
	case e.Leave != nil:
		return fmt.Sprintf("node %d leaves", *e.Leave)
	case e.Join != nil:
		return fmt.Sprintf("node %d joins", *e.Join)
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
