package freezer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"penstock/node/control/cgroup"
)

// kernel has the functions that freeze and thaw cgroups, which are named by their target in the journal.
// freeze returns the function that thaws the cgroup again.
type kernel struct {
	freeze func(target string, protected []int) (thaw func() error, err error)
	thaw   func(target string) error
}

var realKernel = kernel{
	freeze: func(text string, protected []int) (func() error, error) {
		t, err := parseTarget(text)
		if err != nil {
			return nil, err
		}
		return t.freeze(protected)
	},
	thaw: func(text string) error {
		t, err := parseTarget(text)
		if err != nil {
			return err
		}
		return t.thaw()
	},
}

// order is a line from the daemon to the helper. It asks the helper to freeze a cgroup for a time, or to thaw
// what an earlier order has frozen.
type order struct {
	ID        uint64        `json:"id"`
	Thaw      bool          `json:"thaw,omitempty"`
	Target    string        `json:"target,omitempty"`
	For       time.Duration `json:"for_ns,omitempty"`
	Protected []int         `json:"protected,omitempty"`
}

// report is a line from the helper to the daemon. It reports that the cgroup of an order was thawed, or why it
// was not frozen.
type report struct {
	ID     uint64        `json:"id"`
	Frozen time.Duration `json:"frozen_ns,omitempty"`
	Err    string        `json:"error,omitempty"`
	Gone   bool          `json:"gone,omitempty"` // the cgroup no longer exists
}

func (r report) err() error {
	switch {
	case r.Gone:
		return fmt.Errorf("%w (%s)", cgroup.ErrGone, r.Err)
	case r.Err != "":
		return errors.New(r.Err)
	}
	return nil
}

// helperVariable makes this program the helper.
const helperVariable = "PENSTOCK_FREEZER_HELPER"

// RunIfHelper does the helper's work and ends the process if this process was started as a freezer's helper.
// Otherwise it does nothing. The main function of a program that calls Start, and the TestMain of its tests,
// must call RunIfHelper first.
func RunIfHelper() {
	if os.Getenv(helperVariable) == "" {
		return
	}
	// The helper must end only when the daemon has ended. A write to a closed pipe must not end the helper
	// before it has thawed everything.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	_ = os.WriteFile("/proc/self/comm", []byte(helperName), 0) // only for the output of ps
	if err := serve(os.Stdin, os.Stdout, realKernel); err != nil {
		fmt.Fprintln(os.Stderr, "penstock's freezer:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

const helperName = "penstock-freeze" // at most 15 bytes

// maxOrder is the longest line between daemon and helper, in bytes.
const maxOrder = 1 << 20

var errTwice = errors.New("the helper is already carrying out an order with this number")

// serve is the helper's work. It returns when the daemon's end of in is closed and nothing is frozen.
func serve(in io.Reader, out io.Writer, k kernel) error {
	orders := make(chan order)
	ended := make(chan error, 1)
	go func() {
		defer close(orders)
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, maxOrder)
		for lines.Scan() {
			var o order
			if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
				ended <- fmt.Errorf("parse an order of the daemon: %w", err)
				return
			}
			orders <- o
		}
		ended <- lines.Err()
	}()

	type ice struct {
		thaw  func() error
		began time.Time
		until time.Time
	}
	icy := map[uint64]ice{}
	lines := json.NewEncoder(out)
	answer := func(r report, err error) {
		if err != nil {
			r.Err, r.Gone = err.Error(), errors.Is(err, cgroup.ErrGone)
		}
		_ = lines.Encode(r) // if this fails, the daemon has ended, and in is closed, too
	}
	thaw := func(id uint64) error {
		i, ok := icy[id]
		if !ok {
			return nil
		}
		delete(icy, id)
		err := i.thaw()
		answer(report{ID: id, Frozen: max(time.Since(i.began), 1)}, err)
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case o, ok := <-orders:
			if !ok {
				errs := []error{<-ended}
				for id := range icy {
					errs = append(errs, thaw(id))
				}
				return errors.Join(errs...)
			}
			if o.Thaw {
				_ = thaw(o.ID) // the report to the daemon has the error
				break
			}
			began := time.Now()
			if _, known := icy[o.ID]; known {
				answer(report{ID: o.ID}, errTwice)
				break
			}
			thaw, err := k.freeze(o.Target, o.Protected)
			if err != nil {
				answer(report{ID: o.ID}, err)
				break
			}
			icy[o.ID] = ice{thaw, began, began.Add(min(o.For, maxFrozen))}
		case <-timer.C:
		}
		// Cgroups whose time is over are thawed before the next order is read, even if orders arrive all the
		// time.
		var next time.Time
		for id, i := range icy {
			if !time.Now().Before(i.until) {
				_ = thaw(id)
			} else if next.IsZero() || i.until.Before(next) {
				next = i.until
			}
		}
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// child is the process of a helper.
type child struct {
	pid     int
	orders  io.WriteCloser
	reports io.Reader
	kill    func()
	wait    func()
}

// spawn starts this program as a helper.
func spawn() (*child, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{helperName}
	cmd.Env = append(os.Environ(), helperVariable+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	theirs, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	reports, report, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, orders.Close())
	}
	defer report.Close()
	cmd.Stdin, cmd.Stdout = theirs, report
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, orders.Close(), reports.Close())
	}
	return &child{cmd.Process.Pid, orders, reports, func() { _ = cmd.Process.Kill() }, func() { _ = cmd.Wait(); reports.Close() }}, nil
}

// helper starts the child, sends it orders and waits for its reports.
type helper struct {
	spawn func() (*child, error)
	k     kernel

	sending sync.Mutex // one order at a time

	mu      sync.Mutex
	child   *child // nil: no child runs
	started time.Time
	last    uint64 // the ID of the last order
	waiting map[uint64]waiting
	closed  bool
	ended   chan struct{} // closed when the child has ended and all is thawed
}

// waiting is an order without a report.
type waiting struct {
	target string
	done   chan result // buffered
}

type result struct {
	frozen time.Duration
	err    error
}

func newHelper(spawn func() (*child, error), k kernel) (*helper, error) {
	h := &helper{spawn: spawn, k: k, waiting: map[uint64]waiting{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h, h.start()
}

var errNoHelper = errors.New("the freezer's helper has ended, so nothing is frozen; another helper starts within seconds")

// start starts the child. The caller holds h.mu.
func (h *helper) start() error {
	if h.closed {
		return ErrClosed
	}
	if !h.started.IsZero() && time.Since(h.started) < restartPause {
		return errNoHelper
	}
	h.started = time.Now()
	c, err := h.spawn()
	if err != nil {
		return fmt.Errorf("start the freezer's helper: %w", err)
	}
	h.child, h.ended = c, make(chan struct{})
	go h.follow(c, h.ended)
	return nil
}

// follow delivers the child's reports until the child ends, and then thaws what the child has left frozen.
func (h *helper) follow(c *child, ended chan struct{}) {
	defer close(ended)
	lines := bufio.NewScanner(c.reports)
	for lines.Scan() {
		var r report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			break
		}
		h.mu.Lock()
		w, ok := h.waiting[r.ID]
		delete(h.waiting, r.ID)
		h.mu.Unlock()
		if !ok {
			continue
		}
		err := r.err()
		if err != nil && r.Frozen > 0 && !r.Gone {
			err = h.thaw(w.target, err) // the helper could not thaw the cgroup
		}
		w.done <- result{r.Frozen, err}
	}
	// Thaw only after the child has ended, because a running child could freeze again.
	c.kill()
	c.wait()
	h.mu.Lock()
	left := h.waiting
	h.waiting, h.child = map[uint64]waiting{}, nil
	_ = c.orders.Close()
	h.mu.Unlock()
	for _, w := range left {
		w.done <- result{0, h.thaw(w.target, errNoHelper)}
	}
}

// thaw thaws a cgroup that the helper has not thawed because of the error because. It returns that error. If
// thaw fails, too, it also returns an error that wraps errStuck.
func (h *helper) thaw(target string, because error) error {
	if err := h.k.thaw(target); err != nil && !errors.Is(err, cgroup.ErrGone) {
		return errors.Join(because, fmt.Errorf("%w: %w", errStuck, err))
	}
	return because
}

// freeze freezes a cgroup for a time. It returns when the cgroup is thawed, with the time for which it was
// frozen. When stop is closed, the cgroup is thawed at once.
func (h *helper) freeze(target string, length time.Duration, protected []int, stop <-chan struct{}) (time.Duration, error) {
	h.mu.Lock()
	if h.child == nil {
		if err := h.start(); err != nil {
			h.mu.Unlock()
			return 0, err
		}
	}
	c := h.child
	h.last++
	id := h.last
	done := make(chan result, 1)
	h.waiting[id] = waiting{target, done}
	h.mu.Unlock()
	h.send(c, order{ID: id, Target: target, For: length, Protected: protected})

	late := time.NewTimer(length + patience)
	defer late.Stop()
	for {
		select {
		case r := <-done:
			return r.frozen, r.err
		case <-late.C:
			c.kill() // then follow thaws the cgroup
		case <-stop:
			stop = nil
			h.send(c, order{ID: id, Thaw: true})
			late.Reset(patience)
		}
	}
}

// send writes an order. A child that does not read its orders is killed.
func (h *helper) send(c *child, o order) {
	h.sending.Lock()
	defer h.sending.Unlock()
	line, err := json.Marshal(o)
	if err == nil {
		if pipe, ok := c.orders.(*os.File); ok {
			err = pipe.SetWriteDeadline(time.Now().Add(patience))
		}
	}
	if err == nil {
		_, err = c.orders.Write(append(line, '\n'))
	}
	if err != nil {
		c.kill()
	}
}

// close ends the child. No freeze may be waiting.
func (h *helper) close() error {
	h.mu.Lock()
	h.closed = true
	c, ended := h.child, h.ended
	if c == nil {
		h.mu.Unlock()
		<-ended
		return nil
	}
	err := c.orders.Close()
	h.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		c.kill()
		<-ended
	}
	return err
}
