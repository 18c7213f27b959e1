package network

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

// Setup is everything, besides the set-up, that may change a figure.
type Setup struct {
	WarmUpS             float64 `json:"warm_up_s"`  // of each figure
	MeasuredS           float64 `json:"measured_s"` // likewise
	WriteBytes          int     `json:"write_bytes"`
	RequestBytes        int     `json:"request_bytes"`
	AnswerBytes         int     `json:"answer_bytes"`
	Pairs               []int   `json:"pairs"`        // numbers of pairs of containers
	CPU                 int     `json:"cpu"`          // that all pairs share
	AlsoUnbound         bool    `json:"also_unbound"` // measure the pairs also on all CPUs
	OperationsPerMinute int     `json:"operations_per_minute"`
	OperationBytes      int     `json:"operation_bytes"` // text that an operation counts words in
}

// Bounds of a Setup.
const (
	minMeasuredS = 0.1
	maxMeasuredS = 600
)

// DefaultSetup returns the set-up of the paper where it gives one: requests of 100 bytes and answers of 200 bytes,
// the buffer of Hadoop (io.file.buffer.size of 128 KiB), up to 32 containers, and 1,000 operations per minute. The
// paper's operations are not described; here each counts the words of 16 KiB, so that the operations of 64 containers
// fit on one CPU. All pairs share the last of the CPUs that this process may use.
func DefaultSetup() Setup {
	s := Setup{WarmUpS: 0.3, MeasuredS: 2, WriteBytes: 128 << 10, RequestBytes: 100, AnswerBytes: 200, Pairs: []int{1, 2, 4, 8, 16, 32},
		OperationsPerMinute: 1000, OperationBytes: 16 << 10}
	if all := cpus(); len(all) > 0 {
		s.CPU = all[len(all)-1]
	}
	return s
}

// cpus returns the CPUs that this process may use.
func cpus() (all []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			all = append(all, i)
		}
	}
	return all
}

// Validate returns an error for a set-up that cannot be measured.
func (s Setup) Validate() error {
	between := func(what string, v, least, most int) error {
		if v < least || v > most {
			return fmt.Errorf("%s: %d: use %d to %d", what, v, least, most)
		}
		return nil
	}
	errs := []error{
		between("bytes of a write", s.WriteBytes, minWriteBytes, maxWriteBytes),
		between("bytes of a request", s.RequestBytes, minTripBytes, maxTripBytes),
		between("bytes of an answer", s.AnswerBytes, minTripBytes, maxTripBytes),
		between("operations per minute", s.OperationsPerMinute, 1, 1_000_000),
		between("bytes of an operation", s.OperationBytes, 1, maxTextBytes),
	}
	if len(s.Pairs) == 0 {
		errs = append(errs, errors.New("no numbers of pairs"))
	}
	for _, n := range s.Pairs {
		errs = append(errs, between("pairs of containers", n, 1, MaxPairs))
	}
	if !slices.Contains(cpus(), s.CPU) {
		errs = append(errs, fmt.Errorf("CPU %d: this process may use the CPUs %v", s.CPU, cpus()))
	}
	if !(s.MeasuredS >= minMeasuredS && s.MeasuredS <= maxMeasuredS) {
		errs = append(errs, fmt.Errorf("time of a figure: %g s: use %g to %d s", s.MeasuredS, minMeasuredS, maxMeasuredS))
	}
	if !(s.WarmUpS >= 0 && s.WarmUpS <= maxMeasuredS) {
		errs = append(errs, fmt.Errorf("warm-up: %g s: use 0 to %d s", s.WarmUpS, maxMeasuredS))
	}
	return errors.Join(errs...)
}

// Part is one of the paper's experiments.
type Part string

// Parts.
const (
	PartStreams Part = "streams" // Figure 3
	PartTrips   Part = "trips"   // Figure 4
	PartAwake   Part = "awake"   // Figure 4, while no CPU halts
	PartPairs   Part = "pairs"   // Figure 5, the network alone
	PartBusy    Part = "busy"    // Figure 5, while each container performs operations
)

// Parts returns all parts.
func Parts() []Part { return []Part{PartStreams, PartTrips, PartAwake, PartPairs, PartBusy} }

// Ways of streams, from the view of the client.
const (
	Transmit = "transmit"
	Receive  = "receive"
	Both     = "both"
)

// Stream is what one client and its server can move. Both directions count in Both. One GB has 1e9 bytes.
type Stream struct {
	Way         string  `json:"way"`
	MBPerSecond float64 `json:"mb_per_s"`
	// MachineCPU is the CPU time of everything on this machine, other programs included, as with perf stat -a.
	MachineCPU float64 `json:"machine_cpu_s_per_gb"`
	// ThreadsCPU is the CPU time of the threads that send and receive. It lacks the work that the kernel does in other
	// threads.
	ThreadsCPU float64 `json:"threads_cpu_s_per_gb"`
}

// Trip describes round trips. All figures per trip are means over the trips of all pairs.
type Trip struct {
	Protocol string `json:"protocol"`
	Pairs    int    `json:"pairs"`
	OneCPU   bool   `json:"one_cpu"`
	Busy     bool   `json:"busy,omitempty"`  // the containers also performed operations
	Awake    bool   `json:"awake,omitempty"` // no CPU halted

	Trips     int64   `json:"trips"`
	Lost      int64   `json:"lost,omitempty"`
	PerSecond float64 `json:"per_s"`
	MeanUS    float64 `json:"mean_us"`
	P50US     float64 `json:"p50_us"`
	P99US     float64 `json:"p99_us"`
	// RunDelayUS is the time for which the threads of both ends were ready to run but had no CPU, per trip. With
	// operations, it includes the delays of the threads that perform them.
	RunDelayUS          float64 `json:"run_delay_us"`
	Switches            float64 `json:"switches"` // context switches of both ends, per trip
	CPUUS               float64 `json:"cpu_us"`   // CPU time of both ends, per trip
	OperationsPerMinute float64 `json:"operations_per_minute,omitempty"`
}

// Figures is the result of one part with one set-up.
type Figures struct {
	Streams []Stream `json:"streams,omitempty"`
	Trips   []Trip   `json:"trips,omitempty"`
}

// Measure measures a part with a set-up. It needs root.
func Measure(ctx context.Context, setUp SetUp, part Part, setup Setup) (f Figures, err error) {
	if err := setup.Validate(); err != nil {
		return Figures{}, err
	}
	pairs := 1
	if part == PartPairs || part == PartBusy {
		pairs = slices.Max(setup.Pairs)
	}
	site, err := NewSite(ctx, setUp, pairs)
	if err != nil {
		return Figures{}, err
	}
	defer func() {
		if err = errors.Join(err, site.Close()); err != nil {
			err = fmt.Errorf("measure %s of %s: %w", part, setUp.Name, err)
		}
	}()
	switch part {
	case PartStreams:
		f.Streams, err = site.streams(ctx, setup)
	case PartTrips, PartAwake:
		if part == PartAwake {
			stop, failed := keepAwake()
			if failed != nil {
				return f, failed
			}
			defer func() { err = errors.Join(err, stop()) }()
		}
		for _, protocol := range []string{TCP, UDP} {
			t, err := site.trips(ctx, setup, Trip{Protocol: protocol, Pairs: 1, Awake: part == PartAwake})
			if err != nil {
				return f, err
			}
			f.Trips = append(f.Trips, t)
		}
	case PartPairs, PartBusy:
		bound := []bool{true}
		if setup.AlsoUnbound {
			bound = append(bound, false)
		}
		for _, oneCPU := range bound {
			for _, n := range setup.Pairs {
				t, err := site.trips(ctx, setup, Trip{Protocol: TCP, Pairs: n, OneCPU: oneCPU, Busy: part == PartBusy})
				if err != nil {
					return f, err
				}
				f.Trips = append(f.Trips, t)
			}
		}
	default:
		err = fmt.Errorf("no part %q: the parts are %v", part, Parts())
	}
	return f, err
}

// streams measures one pair's streams.
func (s *Site) streams(ctx context.Context, setup Setup) (all []Stream, err error) {
	up := connection{server: kindReceive, client: kindSend}
	down := connection{number: 1, server: kindSend, client: kindReceive}
	for _, x := range []struct {
		way         string
		connections []connection
	}{{Transmit, []connection{up}}, {Receive, []connection{down}}, {Both, []connection{up, down}}} {
		out, err := s.perform(ctx, setup, load{connections: x.connections, cpu: noCPU})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", x.way, err)
		}
		gb := out.bytesPerSecond * out.passed.Seconds() / 1e9
		all = append(all, Stream{Way: x.way, MBPerSecond: round(out.bytesPerSecond / 1e6), MachineCPU: round(out.used.machine.Seconds() / gb),
			ThreadsCPU: round(out.used.run.Seconds() / gb)})
	}
	return all, nil
}

// trips measures round trips of the first pairs. The argument says which, and lacks the figures.
func (s *Site) trips(ctx context.Context, setup Setup, t Trip) (Trip, error) {
	l := load{cpu: noCPU, operate: t.Busy}
	if t.OneCPU {
		l.cpu = setup.CPU
	}
	for pair := range t.Pairs {
		l.connections = append(l.connections, connection{pair: pair, server: t.Protocol, client: t.Protocol})
	}
	out, err := s.perform(ctx, setup, l)
	if err != nil {
		return t, fmt.Errorf("%s, %d pairs: %w", t.Protocol, t.Pairs, err)
	}
	h := out.durations
	t.Trips, t.Lost = h.TotalCount(), out.lost
	us := func(ns float64) float64 { return round(ns / 1e3) }
	// The time between the two looks at the usage differs a little from the measured time.
	each := func(sum float64) float64 { return sum / float64(t.Trips) * setup.MeasuredS / out.passed.Seconds() }
	t.PerSecond = round(float64(t.Trips) / setup.MeasuredS)
	t.MeanUS, t.P50US, t.P99US = us(h.Mean()), us(float64(h.ValueAtQuantile(50))), us(float64(h.ValueAtQuantile(99)))
	t.RunDelayUS, t.CPUUS = us(each(float64(out.used.delay))), us(each(float64(out.used.run)))
	t.Switches = round(each(float64(out.used.switches)))
	if t.Busy {
		t.OperationsPerMinute = round(float64(out.operations) / float64(2*t.Pairs) / setup.MeasuredS * 60)
	}
	return t, nil
}

func round(v float64) float64 { return math.Round(v*1e3) / 1e3 }
