package containers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/blockdevice"
	"golang.org/x/sys/unix"

	"penstock/lab/experiment/counters"
	"penstock/lab/proc"
)

// account is what a thread has done so far.
type account struct {
	delay      time.Duration // ready to run, without a CPU
	dispatches uint64        // how often it got a CPU
}

// accounts add up what changing threads do. A thread that ends counts as of the last look at it, so a
// thread that lives between two looks is not seen.
type accounts struct {
	begun   bool
	threads map[int]threadAccount
	ended   account
}

type threadAccount struct{ first, last account }

// look takes the accounts of all threads that live now, by their ids.
func (a *accounts) look(now map[int]account) {
	next := map[int]threadAccount{}
	for id, last := range now {
		t, known := a.threads[id]
		if known && (last.delay < t.last.delay || last.dispatches < t.last.dispatches) {
			a.end(t) // another thread has its id
			t, known = threadAccount{}, true
		}
		if !known && !a.begun {
			t.first = last // only what follows counts
		}
		t.last = last
		next[id] = t
	}
	for id, t := range a.threads {
		if _, lives := now[id]; !lives {
			a.end(t)
		}
	}
	a.begun, a.threads = true, next
}

func (a *accounts) end(t threadAccount) {
	a.ended.delay += t.last.delay - t.first.delay
	a.ended.dispatches += t.last.dispatches - t.first.dispatches
}

// meanDelay returns the mean delay of a dispatch since the first look; 0 without dispatches.
func (a *accounts) meanDelay() time.Duration {
	sum := *a
	for _, t := range a.threads {
		sum.end(t)
	}
	if sum.ended.dispatches == 0 {
		return 0
	}
	return sum.ended.delay / time.Duration(sum.ended.dispatches)
}

// threadsOf returns the accounts of all threads of a cgroup.
func threadsOf(cgroup string) (map[int]account, error) {
	text, err := os.ReadFile(filepath.Join(cgroup, "cgroup.threads"))
	if err != nil {
		return nil, fmt.Errorf("threads of the containers: %w", err)
	}
	all := map[int]account{}
	for _, field := range strings.Fields(string(text)) {
		id, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("threads of the containers: %w", err)
		}
		t, err := procfs.NewProc(id) // /proc also has the folders of threads
		if err != nil {
			continue // it has ended
		}
		s, err := t.Schedstat()
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
			continue
		case err != nil:
			return nil, fmt.Errorf("account of thread %d: %w", id, err)
		}
		all[id] = account{time.Duration(s.WaitingNanoseconds), s.RunTimeslices}
	}
	return all, nil
}

// reading holds counters of the machine at an instant.
type reading struct {
	at       time.Time
	cpu      time.Duration // of all CPUs together
	switches uint64
	disks    time.Duration // for which they had requests, all together
}

// usage is what the machine did between two readings.
type usage struct {
	Seconds           float64
	CPU               float64 // part of the CPUs' time, 0 to 1
	SwitchesPerSecond float64
	Disks             float64 // mean part of the time for which a disk had requests, 0 to 1
}

func (r reading) until(later reading, cpus, disks int) usage {
	passed := later.at.Sub(r.at).Seconds()
	if !(passed > 0) {
		return usage{}
	}
	return usage{Seconds: passed, CPU: min(1, (later.cpu-r.cpu).Seconds()/passed/float64(cpus)), SwitchesPerSecond: float64(later.switches-r.switches) / passed,
		Disks: min(1, (later.disks-r.disks).Seconds()/passed/float64(max(1, disks)))}
}

// meter measures what the machine and the containers' threads do during a job.
type meter struct {
	cgroup  string
	devices []string // names of the disks
	cpus    int
	proc    procfs.FS
	blocks  blockdevice.FS

	begin   reading
	threads accounts
	stop    context.CancelFunc
	stopped chan error
}

func newMeter(cgroup string, devices []string) (m *meter, err error) {
	m = &meter{cgroup: cgroup, devices: devices}
	if m.proc, err = procfs.NewDefaultFS(); err != nil {
		return nil, err
	}
	if m.blocks, err = blockdevice.NewDefaultFS(); err != nil {
		return nil, err
	}
	stat, err := m.proc.Stat()
	if err != nil {
		return nil, err
	}
	m.cpus = len(stat.CPU)
	return m, nil
}

func (m *meter) read() (r reading, err error) {
	if r.cpu, err = proc.MachineCPUTime(); err != nil {
		return r, err
	}
	stat, err := m.proc.Stat()
	if err != nil {
		return r, err
	}
	r.switches = stat.ContextSwitches
	for _, d := range m.devices {
		s, _, err := m.blocks.SysBlockDeviceStat(d)
		if err != nil {
			return r, fmt.Errorf("requests of %s: %w", d, err)
		}
		r.disks += time.Duration(s.IOsTotalTicks) * time.Millisecond
	}
	r.at = time.Now()
	return r, nil
}

// start begins to measure, and looks at the threads at an interval until the end.
func (m *meter) start(every time.Duration) (err error) {
	m.threads = accounts{}
	if m.begin, err = m.read(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.stop, m.stopped = cancel, make(chan error, 1)
	go func() {
		m.stopped <- counters.Every(ctx, every, func() error {
			now, err := threadsOf(m.cgroup)
			if err == nil {
				m.threads.look(now)
			}
			return err
		})
	}()
	return nil
}

// end returns what was measured since the start: the usage, and the mean delay of the containers' threads in the run
// queue.
func (m *meter) end() (u usage, delay time.Duration, err error) {
	after, err := m.read()
	m.stop()
	if err := errors.Join(err, <-m.stopped); err != nil {
		return usage{}, 0, err
	}
	return m.begin.until(after, m.cpus, len(m.devices)), m.threads.meanDelay(), nil
}

func round(v float64) float64 { return math.Round(v*1e3) / 1e3 }
