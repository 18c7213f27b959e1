package sim

import (
	"fmt"
	"time"

	"penstock/lab/disk"
	"penstock/settings"
)

// Bounds of a scenario.
const (
	MaxNodes        = 100_000
	MaxApplications = 10_000
	maxLength       = 24 * time.Hour
	maxFile         = 1 << 20
	maxFlows        = 20_000_000 // memory is taken for every application on every node
	maxDatanodes    = 16         // of a machine
	maxChanges      = 10_000     // events, and times that applications go on or off
)

// Scenario is what is to be played, from a YAML file.
type Scenario struct {
	Title string `yaml:"title"`
	// Length of the run; the first part of it, Settle, is shown but not judged.
	Length settings.Duration `yaml:"length"`
	Settle settings.Duration `yaml:"settle"`
	// Window is what shares are taken over; default 1s, at least 100ms.
	Window settings.Duration `yaml:"window"`

	Nodes        []NodeSpec        `yaml:"nodes"`
	Applications []ApplicationSpec `yaml:"applications"`
	// Jobs and Traces are MapReduce jobs. With some of them the run ends with the last job, is
	// played in several ways, and is judged by slowdowns, not by shares.
	Jobs      []JobSpec     `yaml:"jobs"`
	Traces    []TraceSpec   `yaml:"traces"`
	MapReduce MapReduceSpec `yaml:"mapreduce"`
	Exchange  ExchangeSpec  `yaml:"exchange"`
	Events    []EventSpec   `yaml:"events"`
	Expect    ExpectSpec    `yaml:"expect"`

	dir string // of the file
}

// NodeSpec are machines of one kind, each with one device.
type NodeSpec struct {
	Count int `yaml:"count"` // default 1
	// Datanodes are virtual ones that share the machine's disk, 1 to 16; default 1. Each has a
	// number of its own. Scheduler says what there is one of for it: "datanode", with a
	// scheduler in each, or "device" (default).
	Datanodes int    `yaml:"datanodes"`
	Scheduler string `yaml:"scheduler"`
	// Disk is hdd, ssd or nvme; the rate, bytes a second, is by default that of a real one:
	// 150 MB, 500 MB, 3 GB.
	Disk    string         `yaml:"disk"`
	Rate    settings.Bytes `yaml:"rate"`
	Quantum settings.Bytes `yaml:"quantum"` // default 2MiB, 1MiB, 1MiB
	// Algorithm is the scheduler; default sfqd2, which begins at Depth (2, 8, 8).
	Algorithm string `yaml:"algorithm"`
	Depth     int    `yaml:"depth"`
}

// The values of NodeSpec.Scheduler.
const (
	eachDatanode = "datanode"
	eachDevice   = "device"
)

// ApplicationSpec are applications of one kind, which want all they can get where they are:
// always, or by turns.
type ApplicationSpec struct {
	Name   string  `yaml:"name"`
	Count  int     `yaml:"count"`  // default 1
	Weight float64 `yaml:"weight"` // default 1
	// On are the numbers of the nodes that they are on; or Spread the part of all nodes, 0 to
	// 1, drawn for each of them, at least one. Neither: all.
	On     []int   `yaml:"on"`
	Spread float64 `yaml:"spread"`
	IO     string  `yaml:"io"` // read (default) or write
	// Begin is when it begins; from then on it is on for OnFor and off for OffFor, by turns.
	// Neither: on to the end.
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

// nameOf is the n-th one's.
func (a *ApplicationSpec) nameOf(n int) string {
	if a.Count <= 1 {
		return a.Name
	}
	return fmt.Sprintf("%s-%d", a.Name, n+1)
}

// ExchangeSpec is the exchange between nodes and broker.
type ExchangeSpec struct {
	Period settings.Duration `yaml:"period"` // default 1s
	Off    bool              `yaml:"off"`    // local shares only
	// Rule is what nodes make of totals: parts (default), Penstock's own, or dsfq, delays as in
	// DSFQ and IBIS, for comparison. dsfq is for applications that are on all the time.
	Rule     string            `yaml:"rule"`
	DelayMin settings.Duration `yaml:"delay_min"`
	DelayMax settings.Duration `yaml:"delay_max"`
	Loss     float64           `yaml:"loss"` // part of the messages, 0 to 0.9
	// Session is how long a leading broker's session is: with it a standby is there, which
	// takes over when the session of one that is gone has run out. 1s to 5m.
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

// EventSpec is one thing that happens.
type EventSpec struct {
	At settings.Duration `yaml:"at"`
	// Broker goes "down" or comes "up", with nothing remembered.
	Broker string `yaml:"broker"`
	// Leave and Join name a node, by its number: it is cut off from everything, and is there
	// again.
	Leave *int `yaml:"leave"`
	Join  *int `yaml:"join"`
	// Application gets another Weight.
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

// ExpectSpec is what the run must show.
type ExpectSpec struct {
	// Misplaced is the most of the service that may go to others than it is due to, 0 to 1:
	// the median over the windows after Settle, those in Recovery after an event left out.
	Misplaced float64 `yaml:"misplaced"`
	// Recovery is how soon after an event that must hold again; default 3s.
	Recovery settings.Duration `yaml:"recovery"`
	// AtLeast turns Misplaced round, for scenarios of what goes wrong without Penstock.
	AtLeast bool `yaml:"at_least"`
	// Converged is the longest that it may take after any change until no window up to the
	// next one is above Misplaced; 0: not looked at. It is as exact as Window.
	Converged settings.Duration `yaml:"converged"`
	// Spans are parts of the run with bounds of their own, by their medians.
	Spans []SpanSpec `yaml:"spans"`
	// Better is by how much the jobs' average slowdown with the broker's totals is to be below
	// that with local shares, and below FIFO's: 0.1 is from 1.9 times the time alone to 1.8.
	Better BetterSpec `yaml:"better"`
}

// SpanSpec is a part of the run.
type SpanSpec struct {
	Name string            `yaml:"name"`
	From settings.Duration `yaml:"from"`
	To   settings.Duration `yaml:"to"`
	// Most and Least bound what is misplaced, 0 to 1; 0: not looked at.
	Most  float64 `yaml:"most"`
	Least float64 `yaml:"least"`
}

// BetterSpec are differences of average slowdowns; 0: not looked at.
type BetterSpec struct {
	Local float64 `yaml:"than_local"`
	FIFO  float64 `yaml:"than_fifo"`
}

// JobSpec are MapReduce jobs of one kind.
type JobSpec struct {
	Name   string            `yaml:"name"`
	Count  int               `yaml:"count"`  // default 1
	At     settings.Duration `yaml:"at"`     // when the first one is submitted
	Every  settings.Duration `yaml:"every"`  // from one to the next
	Weight float64           `yaml:"weight"` // default 1
	// Application is what they belong to, with one weight together; without it each job is one.
	Application string `yaml:"application"`
	// Queue is where they wait for slots; without it each application has one of its own.
	Queue string `yaml:"queue"`
	// Input, Shuffle and Output are bytes of the whole job. The input lies on the nodes On, or
	// on a part Spread of all, or on all. Without input Maps of them write the output.
	Input   settings.Bytes `yaml:"input"`
	Shuffle settings.Bytes `yaml:"shuffle"`
	Output  settings.Bytes `yaml:"output"`
	On      []int          `yaml:"on"`
	Spread  float64        `yaml:"spread"`
	Maps    int            `yaml:"maps"`    // without input only
	Reduces int            `yaml:"reduces"` // 0: one for each GiB of shuffle or output, rounded up
	// Slots bounds the tasks of the queue that run at a time; 0: as many as there are.
	Slots int `yaml:"slots"`
	// Rate is the most that a task reads or writes of HDFS in a second for itself: its
	// processor's part. 0: no bound.
	Rate settings.Bytes `yaml:"rate"`
	// Background jobs are no part of the slowdowns, and none waits for their end.
	Background bool `yaml:"background"`
}

// TraceSpec are jobs of a file in SWIM's format.
type TraceSpec struct {
	Name   string  `yaml:"name"`
	File   string  `yaml:"file"`   // beside the scenario; or penstock-lab sim --trace
	Weight float64 `yaml:"weight"` // default 1
	// Application and Queue are as a job's.
	Application string `yaml:"application"`
	Queue       string `yaml:"queue"`
	// Jobs is how many successive jobs are played, from one that is drawn; of the runs of jobs
	// that are submitted within half of the length. 0: all jobs, up to the bound.
	Jobs int `yaml:"jobs"`
	// Machines is the size of the cluster that the trace is of: sizes are multiplied by the
	// scenario's nodes and divided by it, as SWIM does. 0: they stay.
	Machines int `yaml:"machines"`
	// Least is the least map input of a job after that. With it shuffle and output are at least
	// a KiB, so each job has maps and a reduce. SWIM has 64MiB. 0: no bound.
	Least settings.Bytes `yaml:"least"`
	// Bytes and Time are what sizes and times are multiplied by; default 1.
	Bytes float64        `yaml:"bytes"`
	Time  float64        `yaml:"time"`
	Slots int            `yaml:"slots"`
	Rate  settings.Bytes `yaml:"rate"`
}

// MapReduceSpec is how jobs are run.
type MapReduceSpec struct {
	Slots       int               `yaml:"slots"`       // tasks at a time on a node; default 8
	Block       settings.Bytes    `yaml:"block"`       // default 128MiB
	Replication int               `yaml:"replication"` // default 3, at most the number of nodes
	Start       settings.Duration `yaml:"start"`       // of a task, before its first I/O; default 1s
	// Order is whose task is next: fair (default), the queue with the fewest running and of its
	// jobs the one with the fewest, or fifo, the job that came first.
	Order string `yaml:"order"`
	// Play are the ways: of alone, fifo, local and coordinated; default all. Without alone
	// there are no slowdowns, only times.
	Play []string `yaml:"play"`
}
