// Package freezer lets the processes of a cgroup run for only a part of the time, which is called the
// duty: it stops the processes for up to 200 ms, lets them run, and so on. This is the last resort, for
// processes whose I/O no other mechanism can hold.
//
// Problem: the kernel's freezer stops every process of a cgroup until somebody thaws the cgroup. If
// the daemon is killed while a cgroup is frozen, nobody does that. What is hard is that each process
// that could thaw the cgroup can be killed or stopped as well.
//
// Choice: two processes, each of which can thaw.
//   - Only the helper freezes. It is a second process of this program. Each order to freeze has a
//     duration. The helper thaws when this time is over, without a further order. When the pipe from the
//     daemon closes, the helper thaws everything and ends. The kernel closes that pipe however the daemon
//     ends. If the daemon hangs, nothing stays frozen either.
//   - The daemon knows its orders. If the helper ends, or does not report the thaw in time because it is
//     stopped or the machine is overloaded, the daemon kills the helper, thaws everything itself, and
//     starts another helper. A killed helper cannot freeze any more.
//
// So no single death or stall leaves a process frozen for longer than maxFrozen and patience together,
// 450 ms. A parent-death signal for the helper would be worse: it would be killed before it can thaw.
// A third process would help only if both are killed within the same 200 ms. Then the cgroup stays
// frozen until the daemon starts again and its journal calls Undo. The helper is in a session of its
// own and ignores the usual signals, so that neither an interrupt at the terminal nor the stop of the
// service ends both.
//
// The helper looks for protected processes in the cgroup before each freeze. The freezer
// leaves a cgroup alone that somebody else has frozen. The duty is exact, because the time to run is
// computed from the time for which the cgroup was really frozen. The cost is latency: a held process is
// late by up to 200 ms, and so are all that wait for it. So a daemon of Hadoop must never be held.
package freezer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"penstock/node/control/cgroup"
	"penstock/node/control/journal"
)

// Mechanism is this package's name in the journal.
const Mechanism = "freezer"

const (
	// period is the length of a cycle of running and being frozen. So it is also the longest time for
	// which a cgroup is frozen at once.
	period    = 200 * time.Millisecond
	maxFrozen = period
	// patience is how late the helper's report may be. After that the daemon thaws by itself.
	patience = 250 * time.Millisecond
	// restartPause is the shortest time between two starts of the helper.
	restartPause = time.Second
	// maxHeld is the maximum number of cgroups that are held at the same time.
	maxHeld = 256

	// MinDuty is the smallest duty. With a smaller one, processes would hardly run, and their heartbeats
	// to others would be late.
	MinDuty = 0.05
)

// Errors of holding a cgroup.
var (
	ErrFull   = fmt.Errorf("the freezer holds %d cgroups, which is the limit; name fewer in the policy", maxHeld)
	ErrClosed = errors.New("the freezer is closed, because the daemon is stopping")

	errStuck = errors.New("the cgroup could not be thawed")
)

// Freezer holds cgroups. Its methods may be called by several goroutines.
type Freezer struct {
	protected func() []int
	helper    *helper

	ordering sync.Mutex // held during Hold

	mu     sync.Mutex
	held   map[string]*hold // by the Target of the change in the journal
	closed bool
}

// hold is a cgroup that is held.
type hold struct {
	target string
	stop   chan struct{}
	done   chan struct{}
	once   sync.Once

	mu    sync.Mutex
	state Held
}

// Held is the state of a cgroup that is held.
type Held struct {
	Group  cgroup.Group
	Duty   float64
	Since  time.Time
	Times  int           // number of times that the cgroup was frozen
	Frozen time.Duration // sum of the times for which it was frozen
	// Refused is the number of times that the cgroup could not be frozen. Why is the latest reason: the
	// cgroup contains a protected process, somebody else has frozen it, it was removed, or the helper did
	// not run.
	Refused int
	Why     error
}

// Start starts the helper. protected returns the processes that must not be frozen, such as the daemons of
// Hadoop; it is called before each freeze. The main function of the program must call RunIfHelper
// first. Close the Freezer before the journal.
func Start(protected func() []int) (*Freezer, error) {
	h, err := newHelper(spawn, realKernel)
	if err != nil {
		return nil, fmt.Errorf("start the freezer's helper: %w", err)
	}
	return &Freezer{protected: protected, helper: h, held: map[string]*hold{}}, nil
}

// Hold lets a cgroup run for the part duty of the time, MinDuty to 1. A duty of 1 ends the hold. A further
// call changes the duty.
func (f *Freezer) Hold(j *journal.Journal, g cgroup.Group, duty float64, why string) error {
	if !(duty >= MinDuty && duty <= 1) {
		return fmt.Errorf("hold cgroup %[2]s by the freezer: the duty is %[1]v: use %[3]v to 1", duty, g, MinDuty)
	}
	if duty == 1 {
		return f.Lift(j, g)
	}
	t := targetOf(g).String()
	// f.mu cannot be held here, because the journal locks its entry before it calls Undo, which needs f.mu.
	f.ordering.Lock()
	defer f.ordering.Unlock()
	if err := f.mayHold(g); err != nil {
		return err
	}
	change := journal.Change{Mechanism: Mechanism, Target: t, Before: thawed, After: fmt.Sprintf("runs for %.2f of the time", duty), Why: why}
	return j.Make(change, func() error { return f.begin(g, duty) })
}

// mayHold returns an error if a cgroup that is not held yet must not be held.
func (f *Freezer) mayHold(g cgroup.Group) error {
	t := targetOf(g)
	f.mu.Lock()
	closed, known, full := f.closed, f.held[t.String()] != nil, len(f.held) >= maxHeld
	f.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case known:
		return nil
	case full:
		return ErrFull
	}
	if err := refuse(g, f.protected()); err != nil {
		return err
	}
	state, err := t.read()
	if err == nil && state == frozen {
		err = errFrozen(g)
	}
	return err
}

// begin starts the cycle of a cgroup, or changes its duty.
func (f *Freezer) begin(g cgroup.Group, duty float64) error {
	t := targetOf(g).String()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrClosed
	}
	if h := f.held[t]; h != nil {
		h.mu.Lock()
		h.state.Duty = duty
		h.mu.Unlock()
		return nil
	}
	h := &hold{target: t, stop: make(chan struct{}), done: make(chan struct{}), state: Held{Group: g, Duty: duty, Since: time.Now()}}
	f.held[t] = h
	cycles.add(t, func() error { return f.end(h) })
	go f.cycle(h)
	return nil
}

// Lift ends the hold of a cgroup, which then runs all the time.
func (f *Freezer) Lift(j *journal.Journal, g cgroup.Group) error {
	return j.PutBack(Mechanism, targetOf(g).String())
}

// Held returns the state of the cgroups that are held, in the order of their names.
func (f *Freezer) Held() (all []Held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.held {
		h.mu.Lock()
		all = append(all, h.state)
		h.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Held) int {
		if a.Group.Path < b.Group.Path {
			return -1
		}
		return 1
	})
	return all
}

// Close thaws all cgroups and ends the helper. The records stay in the journal; undoing them does nothing.
func (f *Freezer) Close() error {
	f.mu.Lock()
	f.closed = true
	holds := slices.Collect(maps.Values(f.held))
	f.mu.Unlock()
	var errs []error
	for _, h := range holds {
		errs = append(errs, f.end(h))
	}
	return errors.Join(append(errs, f.helper.close())...)
}

// end ends the cycle of a cgroup. It returns when the cgroup is thawed and this process will not freeze it
// any more. It returns an error if the cgroup could not be thawed.
func (f *Freezer) end(h *hold) error {
	h.once.Do(func() { close(h.stop) })
	<-h.done
	f.mu.Lock()
	if f.held[h.target] == h {
		delete(f.held, h.target)
	}
	f.mu.Unlock()
	return f.unstick(h)
}

// unstick thaws a cgroup again if the last attempt has failed.
func (f *Freezer) unstick(h *hold) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !errors.Is(h.state.Why, errStuck) {
		return nil
	}
	if err := f.helper.thaw(h.target, nil); err != nil {
		h.state.Why = err
		return err
	}
	h.state.Why = nil
	return nil
}

// cycle freezes a cgroup again and again until it is stopped.
func (f *Freezer) cycle(h *hold) {
	defer close(h.done)
	// The cgroup runs first, so that a hold that is lifted at once has no effect.
	timer := time.NewTimer(h.running(0))
	defer timer.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-timer.C:
		}
		if err := f.unstick(h); err != nil {
			timer.Reset(period)
			continue
		}
		h.mu.Lock()
		duty := h.state.Duty
		h.mu.Unlock()
		took, err := f.helper.freeze(h.target, frozenTime(duty), f.protected(), h.stop)
		h.mu.Lock()
		if err != nil {
			h.state.Refused, h.state.Why = h.state.Refused+1, err
		} else {
			h.state.Times, h.state.Frozen = h.state.Times+1, h.state.Frozen+took
		}
		h.mu.Unlock()
		if errors.Is(err, cgroup.ErrGone) {
			return
		}
		timer.Reset(h.running(took))
	}
}

// frozenTime returns for how long a cgroup is frozen in a cycle.
func frozenTime(duty float64) time.Duration {
	return min(maxFrozen, time.Duration((1-duty)*float64(period)))
}

// running returns for how long the cgroup runs after it was frozen for the given time, so that the
// duty is met. After a refusal it runs for a whole period.
func (h *hold) running(frozen time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if frozen <= 0 {
		return period
	}
	return time.Duration(float64(frozen) * h.state.Duty / (1 - h.state.Duty))
}

// cycles has a function for each target that this process holds. The function ends the cycle. The
// journal puts a change back by Undo, which knows only the change. Undo uses cycles to end the cycle,
// which would otherwise freeze the cgroup again.
var cycles = registry{end: map[string]func() error{}}

type registry struct {
	mu  sync.Mutex
	end map[string]func() error
}

func (r *registry) add(target string, end func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end[target] = end
}

// take removes and returns the function of a target; nil if this process does not hold the target.
func (r *registry) take(target string) func() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := r.end[target]
	delete(r.end, target)
	return end
}

// Undo puts a change back: see journal.Undo. If this process holds the cgroup, Undo ends the hold, which
// thaws the cgroup. If a dead process has left the cgroup frozen, Undo thaws it; it cannot know whether
// somebody else has frozen the cgroup in the meantime. Undo does nothing if the cgroup was removed, even if
// another one has its name now.
func Undo(c journal.Change) error {
	t, err := parseTarget(c.Target)
	if err != nil {
		return err
	}
	if end := cycles.take(c.Target); end != nil && end() == nil {
		return nil
	}
	err = t.thaw()
	if errors.Is(err, cgroup.ErrGone) {
		return nil
	}
	return err
}
