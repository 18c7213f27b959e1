package network

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// probeLost is how long a prober waits for an answer. A machine with much other load may be busy for seconds.
const probeLost = time.Minute

// Probe makes single round trips over TCP between two network namespaces at an interval, while something else is
// measured. Each end is a process, as the ends of Measure are.
type Probe struct {
	client, server *process
	address        netip.AddrPort
	setup          Setup
	proc           procfs.FS
	before         usage // of the server's thread
}

// ProbePlace says where the ends of a probe run.
type ProbePlace struct {
	// Client and Server call a function on a thread in the network namespace of the end.
	Client, Server func(f func() error) error
	// Address is that of the server. Each measurement listens there.
	Address netip.AddrPort
	// Cgroup is the folder of the cgroup (version 2) of both processes; "": that of the caller.
	Cgroup string
}

// StartProbe starts the processes. The probe must be closed.
func StartProbe(at ProbePlace, setup Setup) (_ *Probe, err error) {
	p := &Probe{address: at.Address, setup: setup}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start the probe of round trips: %w", err), p.Close())
		}
	}()
	if p.proc, err = procfs.NewDefaultFS(); err != nil {
		return nil, err
	}
	var group *os.File
	if at.Cgroup != "" {
		if group, err = os.Open(at.Cgroup); err != nil {
			return nil, err
		}
		defer group.Close()
	}
	if p.client, err = startProcess(within(at.Client, group)); err != nil {
		return nil, err
	}
	if p.server, err = startProcess(within(at.Server, group)); err != nil {
		return nil, err
	}
	return p, nil
}

// within returns a launch that starts a process in the namespace of do and in a cgroup; nil: the caller's.
func within(do func(f func() error) error, group *os.File) launch {
	return func(cmd *exec.Cmd) (pid int, end func() error, err error) {
		if group != nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
		}
		err = do(func() (err error) {
			pid, end, err = together(cmd)
			return err
		})
		return pid, end, err
	}
}

// Begin makes a round trip every so often, until End. The time must be above 0.
func (p *Probe) Begin(every time.Duration) (err error) {
	o := order{RequestBytes: p.setup.RequestBytes, AnswerBytes: p.setup.AnswerBytes, CPU: noCPU, Kind: kindTCP, Address: p.address}
	o.Action = actListen
	if _, err := p.server.order(o, orderWait); err != nil {
		return err
	}
	o.Action, o.Every = actConnect, every
	if _, err := p.client.order(o, orderWait); err != nil {
		return err
	}
	if p.before, err = p.look(); err != nil {
		return err
	}
	for _, end := range []*process{p.server, p.client} {
		if _, err := end.order(order{Action: actRun, StartNS: time.Now().UnixNano()}, orderWait); err != nil {
			return err
		}
	}
	return nil
}

func (p *Probe) look() (usage, error) {
	var threads []thread
	for _, tid := range p.server.threads {
		threads = append(threads, thread{p.server.pid, tid})
	}
	return look(p.proc, threads)
}

// End ends the round trips and returns their figures. RunDelayUS is that during the trips. The figures have no CPU
// time and no context switches, because those between the trips are not theirs.
func (p *Probe) End() (t Trip, err error) {
	after, err := p.look()
	if err != nil {
		return Trip{}, err
	}
	var sum outcome
	var delay time.Duration
	for _, end := range []*process{p.client, p.server} { // the client closes the connection
		a, err := end.order(order{Action: actEnd}, probeLost+orderWait)
		if err != nil {
			return Trip{}, err
		}
		if err := sum.add(a); err != nil {
			return Trip{}, err
		}
		delay += a.Delay
	}
	h := sum.durations
	if h == nil || h.TotalCount() == 0 {
		return Trip{}, errors.New("the probe has made no round trip")
	}
	delay += after.sub(p.before).delay
	us := func(ns float64) float64 { return round(ns / 1e3) }
	return Trip{Protocol: TCP, Pairs: 1, Trips: h.TotalCount(), MeanUS: us(h.Mean()), P50US: us(float64(h.ValueAtQuantile(50))),
		P99US: us(float64(h.ValueAtQuantile(99))), RunDelayUS: us(float64(delay.Nanoseconds()) / float64(h.TotalCount()))}, nil
}

// Close ends the processes.
func (p *Probe) Close() (err error) {
	for _, end := range []**process{&p.client, &p.server} {
		if *end != nil {
			err = errors.Join(err, (*end).end())
			*end = nil
		}
	}
	return err
}

// prober makes a round trip every so often until ended returns true, at least one. It returns the durations of the
// trips in nanoseconds, and how long its thread waited in the run queue during the trips.
func prober(fd, requestBytes, answerBytes int, every time.Duration, ended func() bool) (durations *hdrhistogram.Histogram, delay time.Duration, err error) {
	if err := receiveTimeout(fd, probeLost); err != nil {
		return nil, 0, err
	}
	account, err := unix.Open("/proc/thread-self/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("open the account of the run queue: %w", err)
	}
	defer unix.Close(account)
	durations = newHistogram()
	request, answer := make([]byte, requestBytes), make([]byte, answerBytes)
	for {
		before, err := waited(account)
		if err != nil {
			return nil, 0, err
		}
		began := time.Now()
		if err := writeAll(fd, request); err != nil {
			return nil, 0, fmt.Errorf("send a request: %w", err)
		}
		if err := readAll(fd, answer); err != nil {
			if errors.Is(err, unix.EAGAIN) {
				err = fmt.Errorf("none within %v", probeLost)
			}
			return nil, 0, fmt.Errorf("receive an answer: %w", err)
		}
		passed := time.Since(began)
		after, err := waited(account)
		if err != nil {
			return nil, 0, err
		}
		delay += after - before
		_ = durations.RecordValue(min(max(passed.Nanoseconds(), 1), longestTrip.Nanoseconds()))
		for next := began.Add(every); !ended(); {
			left := time.Until(next)
			if left <= 0 {
				break
			}
			// As in operate, the thread itself sleeps.
			pause := unix.NsecToTimespec(min(left, serverLook).Nanoseconds())
			_ = unix.Nanosleep(&pause, nil) // if a signal interrupts it, the loop continues it
		}
		if ended() {
			return durations, delay, nil
		}
	}
}

// waited returns how long the thread of an open schedstat has waited in the run queue.
func waited(account int) (time.Duration, error) {
	var text [128]byte
	n, err := unix.Pread(account, text[:], 0)
	if err != nil {
		return 0, fmt.Errorf("read the account of the run queue: %w", err)
	}
	fields := bytes.Fields(text[:n])
	if len(fields) < 2 {
		return 0, fmt.Errorf("read the account of the run queue: %q", text[:n])
	}
	ns, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return time.Duration(ns), err
}
