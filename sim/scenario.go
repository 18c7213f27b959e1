package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"penstock/core/depth"
	"penstock/settings"
	"penstock/testbed/disk"
)

// Bounds of a scenario.
const (
	MaxNodes        = 100_000
	MaxApplications = 10_000
	maxLength       = 24 * time.Hour
	maxFile         = 1 << 20
	maxFlows        = 20_000_000 // memory is taken for every application on every node
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
	Exchange     ExchangeSpec      `yaml:"exchange"`
	Events       []EventSpec       `yaml:"events"`
	Expect       ExpectSpec        `yaml:"expect"`
}

// NodeSpec are nodes of one kind, each with one device.
type NodeSpec struct {
	Count int `yaml:"count"` // default 1
	// Disk is hdd, ssd or nvme; the rate, bytes a second, is by default that of a real one:
	// 150 MB, 500 MB, 3 GB.
	Disk    string         `yaml:"disk"`
	Rate    settings.Bytes `yaml:"rate"`
	Quantum settings.Bytes `yaml:"quantum"` // default 2MiB, 1MiB, 1MiB
	// Algorithm is the scheduler; default sfqd2, which begins at Depth (2, 8, 8).
	Algorithm string `yaml:"algorithm"`
	Depth     int    `yaml:"depth"`
}

// ApplicationSpec are applications of one kind, which always want more where they are.
type ApplicationSpec struct {
	Name   string  `yaml:"name"`
	Count  int     `yaml:"count"`  // default 1
	Weight float64 `yaml:"weight"` // default 1
	// On are the numbers of the nodes that they are on; or Spread the part of all nodes, 0 to
	// 1, drawn for each of them, at least one. Neither: all.
	On     []int   `yaml:"on"`
	Spread float64 `yaml:"spread"`
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
	Period   settings.Duration `yaml:"period"` // default 1s
	Off      bool              `yaml:"off"`    // local shares only
	DelayMin settings.Duration `yaml:"delay_min"`
	DelayMax settings.Duration `yaml:"delay_max"`
	Loss     float64           `yaml:"loss"` // part of the messages, 0 to 0.9
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

// ExpectSpec is what the run must show.
type ExpectSpec struct {
	// Misplaced is the most of the service that may go to others than it is due to, 0 to 1:
	// the median over the windows after Settle, those in Recovery after an event left out.
	Misplaced float64 `yaml:"misplaced"`
	// Recovery is how soon after an event that must hold again; default 3s.
	Recovery settings.Duration `yaml:"recovery"`
	// AtLeast turns Misplaced round, for scenarios of what goes wrong without Penstock.
	AtLeast bool `yaml:"at_least"`
}

// Load reads and checks a scenario.
func Load(file string) (*Scenario, error) {
	s := &Scenario{}
	if err := settings.Load(file, maxFile, s); err != nil {
		return nil, err
	}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

func (s *Scenario) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	s.Length = cmp.Or(s.Length, settings.Duration(time.Minute))
	s.Window = cmp.Or(s.Window, settings.Duration(time.Second))
	s.Exchange.Period = cmp.Or(s.Exchange.Period, settings.Duration(time.Second))
	s.Expect.Recovery = cmp.Or(s.Expect.Recovery, settings.Duration(3*time.Second))
	check(time.Duration(s.Length) <= maxLength, "length %v: at most %v", time.Duration(s.Length), maxLength)
	check(s.Settle < s.Length, "settle %v: less than the length", time.Duration(s.Settle))
	check(time.Duration(s.Window) >= 100*time.Millisecond && s.Window <= s.Length, "window %v: from 100ms to the length", time.Duration(s.Window))
	nodes, applications := 0, 0
	names, all := map[string]bool{}, map[string]bool{}
	check(len(s.Nodes) > 0, "nodes: give at least one kind")
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Count = cmp.Or(n.Count, 1)
		check(n.Count > 0 && n.Count <= MaxNodes, "nodes[%d]: count %d: 1 to %d", i, n.Count, MaxNodes)
		nodes += max(0, min(n.Count, MaxNodes))
		_, err := n.config()
		check(err == nil, "nodes[%d]: %v", i, err)
	}
	check(nodes <= MaxNodes, "%d nodes: at most %d", nodes, MaxNodes)
	check(len(s.Applications) > 0, "applications: give at least one")
	for i := range s.Applications {
		a := &s.Applications[i]
		a.Count, a.Weight = cmp.Or(a.Count, 1), cmp.Or(a.Weight, 1)
		check(a.Name != "" && !names[a.Name], "applications[%d]: name %q: give each kind one of its own", i, a.Name)
		names[a.Name] = true
		for n := range max(0, min(a.Count, MaxApplications)) {
			name := a.nameOf(n)
			check(!all[name], "applications[%d]: two applications would be %q", i, name)
			all[name] = true
		}
		check(a.Count > 0 && a.Count <= MaxApplications, "applications[%d]: count %d: 1 to %d", i, a.Count, MaxApplications)
		applications += max(0, min(a.Count, MaxApplications))
		check(a.Weight >= 0.001 && a.Weight <= 1000, "applications[%d]: weight %v: 0.001 to 1000", i, a.Weight)
		check(a.Spread >= 0 && a.Spread <= 1 && (a.Spread == 0 || a.On == nil), "applications[%d]: give on, or spread from 0 to 1", i)
		for _, n := range a.On {
			check(n >= 0 && n < nodes, "applications[%d]: on node %d of %d", i, n, nodes)
		}
	}
	check(applications <= MaxApplications, "%d applications: at most %d", applications, MaxApplications)
	check(nodes*applications <= maxFlows, "%d nodes and %d applications: at most %d flows", nodes, applications, maxFlows)
	e := s.Exchange
	check(time.Duration(e.Period) >= 10*time.Millisecond, "exchange: period %v: at least 10ms", time.Duration(e.Period))
	check(e.DelayMin <= e.DelayMax || e.DelayMax == 0, "exchange: delay_min is above delay_max")
	check(e.Loss >= 0 && e.Loss <= 0.9, "exchange: loss %v: 0 to 0.9", e.Loss)
	for i, ev := range s.Events {
		kinds := 0
		for _, given := range []bool{ev.Broker != "", ev.Leave != nil, ev.Join != nil, ev.Application != ""} {
			if given {
				kinds++
			}
		}
		check(kinds == 1, "events[%d]: give one of broker, leave, join and application", i)
		check(ev.Broker == "" || ev.Broker == "up" || ev.Broker == "down", "events[%d]: broker %q: up or down", i, ev.Broker)
		for _, n := range []*int{ev.Leave, ev.Join} {
			check(n == nil || *n >= 0 && *n < nodes, "events[%d]: there is no such node", i)
		}
		check(ev.Application == "" || names[ev.Application], "events[%d]: there is no application %q", i, ev.Application)
		check(ev.Application == "" || ev.Weight >= 0.001 && ev.Weight <= 1000, "events[%d]: weight %v: 0.001 to 1000", i, ev.Weight)
	}
	check(s.Expect.Misplaced >= 0 && s.Expect.Misplaced <= 1, "expect: misplaced %v: 0 to 1", s.Expect.Misplaced)
	return errors.Join(errs...)
}

// config is the device of one such node. The reference latencies are those of two quanta,
// as profiling finds them.
func (n NodeSpec) config() (DeviceConfig, error) {
	c := DeviceConfig{Quantum: int64(n.Quantum), Algorithm: cmp.Or(n.Algorithm, "sfqd2"), Depth: n.Depth}
	mib := func(rate int64) time.Duration { return time.Duration(float64(time.Second) * (1 << 20) / float64(rate)) }
	rate := int64(n.Rate)
	switch n.Disk {
	case "hdd", "":
		rate = cmp.Or(rate, 150_000_000)
		c.Model = disk.HDD(rate)
		c.Model.CapacityBytes = 4 << 40
		c.Quantum, c.Depth = cmp.Or(c.Quantum, 2<<20), cmp.Or(c.Depth, 2)
		c.Read = depth.Line{Fixed: 2 * c.Model.SeekMax, PerMiB: 2 * mib(rate)}
	case "ssd", "nvme":
		c.Model = disk.SSD(cmp.Or(rate, 500_000_000))
		// A real one's latencies; the testbed's is slowed down as a whole.
		c.Model.ReadLatency, c.Model.WriteLatency = 100*time.Microsecond, 200*time.Microsecond
		if n.Disk == "nvme" {
			c.Model = disk.SSD(cmp.Or(rate, 3_000_000_000))
			c.Model.Channels, c.Model.ReadLatency, c.Model.WriteLatency = 32, 80*time.Microsecond, 20*time.Microsecond
		}
		c.Quantum, c.Depth = cmp.Or(c.Quantum, 1<<20), cmp.Or(c.Depth, 8)
		c.Read = depth.Line{Fixed: 4 * c.Model.ReadLatency, PerMiB: 2 * mib(c.Model.BytesPerSecond)}
		c.Write = depth.Line{Fixed: 4 * c.Model.WriteLatency, PerMiB: 2 * mib(c.Model.WriteBytesPerSecond)}
	default:
		return c, fmt.Errorf("disk %q: hdd, ssd or nvme", n.Disk)
	}
	if c.Quantum < 64<<10 || c.Quantum > 64<<20 {
		return c, fmt.Errorf("quantum %d: 64KiB to 64MiB", c.Quantum)
	}
	if c.Depth < 1 || c.Depth > 1024 {
		return c, fmt.Errorf("depth %d: 1 to 1024", c.Depth)
	}
	if err := c.Model.Validate(); err != nil {
		return c, err
	}
	_, err := newDevice(&Engine{}, c, 0)
	return c, err
}

// Result is what a run showed. Times are seconds.
type Result struct {
	Title        string        `json:"title"`
	Seed         uint64        `json:"seed"`
	Nodes        int           `json:"nodes"`
	Applications int           `json:"applications"`
	Windows      []Window      `json:"windows"`
	Shares       []Application `json:"shares"`
	// Misplaced is the median over the windows that are judged, Worst the largest.
	Misplaced float64 `json:"misplaced"`
	Worst     float64 `json:"worst"`
	Judged    int     `json:"judged_windows"`
	Good      bool    `json:"good"` // as the scenario expects
	Fault     string  `json:"fault"`
	Events    uint64  `json:"events"` // of the simulation
}

// Window is a part of the run.
type Window struct {
	From      float64 `json:"from"`
	To        float64 `json:"to"`
	Misplaced float64 `json:"misplaced"` // of the service, by the optimum that the placement then allowed
	Judged    bool    `json:"judged"`
}

// Application is one over the judged windows.
type Application struct {
	Name   string  `json:"name"`
	Weight float64 `json:"weight"`
	Nodes  int     `json:"nodes"`
	Due    float64 `json:"due"` // parts of all service
	Had    float64 `json:"had"`
}

// Play plays a scenario. progress, if not nil, is told how far it is, 0 to 1; its error ends the run.
func (s *Scenario) Play(seed uint64, progress func(done float64) error) (*Result, error) {
	p, err := newPlay(s, seed)
	if err != nil {
		return nil, err
	}
	r := &Result{Title: s.Title, Seed: seed, Nodes: len(p.cluster.nodes), Applications: len(p.cluster.apps)}
	window, length := time.Duration(s.Window), time.Duration(s.Length)
	var judged []float64
	had, due := make([]float64, r.Applications), make([]float64, r.Applications)
	for from := time.Duration(0); from < length; from += window {
		to := min(from+window, length)
		if err := p.know(); err != nil { // before what happens at the window's very end
			return nil, err
		}
		p.cluster.Run(to)
		off, got, ideal := p.judge()
		w := Window{From: from.Seconds(), To: to.Seconds(), Misplaced: off, Judged: p.judges(from)}
		if got == nil {
			w.Judged = false // nothing was served
		}
		if w.Judged {
			judged = append(judged, off)
			for i := range had {
				had[i] += got[i]
				due[i] += ideal[i]
			}
		}
		r.Windows = append(r.Windows, w)
		if progress != nil {
			if err := progress(float64(to) / float64(length)); err != nil {
				return nil, err
			}
		}
	}
	r.Judged, r.Events = len(judged), p.cluster.seq
	if len(judged) > 0 {
		slices.Sort(judged)
		r.Misplaced, r.Worst = judged[len(judged)/2], judged[len(judged)-1]
		for i, a := range p.cluster.apps {
			r.Shares = append(r.Shares, Application{Name: a.Name, Weight: a.Weight, Nodes: len(p.on[i]),
				Due: due[i] / float64(len(judged)), Had: had[i] / float64(len(judged))})
		}
	}
	r.Good = true
	if e := s.Expect; e.Misplaced > 0 {
		switch {
		case r.Judged == 0:
			r.Good, r.Fault = false, "no window is judged: make the run longer, or settle and recovery shorter"
		case e.AtLeast && r.Misplaced < e.Misplaced:
			r.Good, r.Fault = false, fmt.Sprintf("%.4f of the service is misplaced, at least %.4f should be", r.Misplaced, e.Misplaced)
		case !e.AtLeast && r.Misplaced > e.Misplaced:
			r.Good, r.Fault = false, fmt.Sprintf("%.4f of the service is misplaced, at most %.4f should be", r.Misplaced, e.Misplaced)
		}
	}
	return r, nil
}
