package network

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/prometheus/procfs"
)

// connection is one that a measurement uses.
type connection struct {
	pair, number   int
	server, client string // kinds of the ends
}

// load is what is measured at the same time.
type load struct {
	connections []connection
	cpu         int  // of all ends; noCPU: any
	operate     bool // each container also performs MapReduce operations
}

// outcome is what was measured.
type outcome struct {
	durations      *hdrhistogram.Histogram // of round trips, in nanoseconds; nil: none
	lost           int64
	bytesPerSecond float64 // of all streams together
	operations     int64
	passed         time.Duration // between the looks at the usage, about the measured time
	used           usage         // meanwhile
}

const (
	orderWait = 10 * time.Second
	// startDelay is the time from the first order to run until the start, for each process and altogether.
	startDelay = 50 * time.Millisecond
	startEach  = 2 * time.Millisecond
	// attempts bounds how often a measurement is repeated if this process is too late with it.
	attempts = 3
)

// errLate means that this process, or the ends of connections, did not get a CPU in time.
var errLate = errors.New("the machine is too busy: measure while it has less other load")

// perform measures a load.
func (s *Site) perform(ctx context.Context, setup Setup, l load) (out outcome, err error) {
	for range attempts {
		if out, err = s.attempt(ctx, setup, l); !errors.Is(err, errLate) {
			break
		}
	}
	return out, err
}

// attempt opens the connections, uses them, and closes them.
func (s *Site) attempt(ctx context.Context, setup Setup, l load) (out outcome, err error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return outcome{}, err
	}
	used, err := s.prepare(setup, l)
	if err != nil {
		return outcome{}, err
	}
	var threads []thread
	for _, p := range used {
		for _, tid := range p.threads {
			threads = append(threads, thread{p.pid, tid})
		}
	}
	warmUp, measured := seconds(setup.WarmUpS), seconds(setup.MeasuredS)
	start := time.Now().Add(startDelay + time.Duration(len(used))*startEach)
	for _, p := range used {
		if _, err := p.order(order{Action: actRun, StartNS: start.UnixNano(), WarmUp: warmUp, Measured: measured}, orderWait); err != nil {
			return outcome{}, err
		}
	}
	begin := start.Add(warmUp)
	if err := pause(ctx, time.Until(begin)); err != nil {
		return outcome{}, err
	}
	began := time.Now()
	late := began.Sub(begin)
	before, err := look(proc, threads)
	if err != nil {
		return outcome{}, err
	}
	if err := pause(ctx, time.Until(begin.Add(measured))); err != nil {
		return outcome{}, err
	}
	out.passed = time.Since(began)
	late = max(late, time.Since(begin.Add(measured)))
	after, err := look(proc, threads)
	if err != nil {
		return outcome{}, err
	}
	out.used = after.sub(before)
	for _, p := range used { // clients come first: their connections end before those of the servers
		a, err := p.order(order{Action: actEnd}, measured+orderWait)
		if err != nil {
			return outcome{}, err
		}
		if err := out.add(a); err != nil {
			return outcome{}, err
		}
	}
	if late > overtime {
		return outcome{}, fmt.Errorf("%w (the figures of threads were read %v late)", errLate, late.Round(time.Millisecond))
	}
	if out.bytesPerSecond == 0 && (out.durations == nil || out.durations.TotalCount() == 0) {
		return outcome{}, fmt.Errorf("%w (nothing arrived within %v, and %d round trips were lost)", errLate, measured, out.lost)
	}
	return out, nil
}

// prepare opens the connections of a load. It returns the processes that are used, clients first.
func (s *Site) prepare(setup Setup, l load) (used []*process, err error) {
	var clients, servers []*process
	last := -1
	for _, c := range l.connections {
		p := s.pairs[c.pair]
		if c.pair != last {
			clients, servers, last = append(clients, p.client), append(servers, p.server), c.pair
		}
		o := order{RequestBytes: setup.RequestBytes, AnswerBytes: setup.AnswerBytes, WriteBytes: setup.WriteBytes, CPU: l.cpu}
		o.Action, o.Kind, o.Address = actListen, c.server, s.setUp.listenAt(c.pair, c.number)
		if _, err := p.server.order(o, orderWait); err != nil {
			return nil, err
		}
		o.Action, o.Kind, o.Address = actConnect, c.client, s.setUp.connectTo(c.pair, c.number)
		if _, err := p.client.order(o, orderWait); err != nil {
			return nil, err
		}
	}
	used = append(clients, servers...)
	if !l.operate {
		return used, nil
	}
	for _, p := range used {
		if _, err := p.order(order{Action: actOperate, PerMinute: setup.OperationsPerMinute, TextBytes: setup.OperationBytes, CPU: l.cpu}, orderWait); err != nil {
			return nil, err
		}
	}
	return used, nil
}

// add adds what a process has measured.
func (out *outcome) add(a answer) error {
	out.lost, out.operations = out.lost+a.Lost, out.operations+a.Operations
	if a.Passed > 0 {
		out.bytesPerSecond += float64(a.Bytes) / a.Passed.Seconds()
	}
	if a.Histogram == nil {
		return nil
	}
	h, err := hdrhistogram.Decode(a.Histogram)
	if err != nil {
		return fmt.Errorf("durations of round trips: %w", err)
	}
	if out.durations == nil {
		out.durations = newHistogram()
	}
	if out.durations.Merge(h) > 0 {
		return errors.New("durations of round trips: some are out of range")
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
