package freezer

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"penstock/node/control/cgroup"
)

// cgroups is a model of cgroups that can be frozen, in memory.
type cgroups struct {
	mu        sync.Mutex
	since     map[string]time.Time // when a cgroup was frozen; absent if it is thawed
	total     map[string]time.Duration
	longest   time.Duration
	freezes   int
	protected []int
	refuse    error // returned by freeze, unless nil
	stuck     int   // number of attempts to thaw that still fail
}

func newCgroups() *cgroups {
	return &cgroups{since: map[string]time.Time{}, total: map[string]time.Duration{}}
}

func (c *cgroups) freeze(target string, protected []int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.protected = protected
	if c.refuse != nil {
		return c.refuse
	}
	if !c.since[target].IsZero() {
		return errors.New("it is frozen already")
	}
	c.since[target] = time.Now()
	c.freezes++
	return nil
}

func (c *cgroups) thaw(target string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stuck > 0 {
		c.stuck--
		return errors.New("it does not thaw")
	}
	if since := c.since[target]; !since.IsZero() {
		c.total[target] += time.Since(since)
		c.longest = max(c.longest, time.Since(since))
		delete(c.since, target)
	}
	return nil
}

func (c *cgroups) kernel() kernel {
	return kernel{
		freeze: func(target string, protected []int) (func() error, error) {
			return func() error { return c.thaw(target) }, c.freeze(target, protected)
		},
		thaw: c.thaw,
	}
}

// seen returns the longest freeze and the number of freezes so far.
func (c *cgroups) seen() (longest time.Duration, freezes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.longest, c.freezes
}

// frozenFor returns for how long a cgroup was frozen, without a freeze that has not ended.
func (c *cgroups) frozenFor(number int) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total[targetOf(groupNumber(number)).String()]
}

func (c *cgroups) frozen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.since)
}

// spawning returns a function that starts serve as a helper. A helper for which hangs returns true reads
// its orders, freezes, and does nothing more.
func spawning(c *cgroups, hangs func() bool) func() (*child, error) {
	return func() (*child, error) {
		theirs, orders := io.Pipe()
		reports, report := io.Pipe()
		var once sync.Once
		killed, ended := make(chan struct{}), make(chan struct{})
		hanging := hangs()
		k := kernel{freeze: func(target string, protected []int) (func() error, error) {
			err := c.freeze(target, protected)
			if hanging {
				<-killed
			}
			return func() error {
				select {
				case <-killed: // a killed process does nothing more
					return nil
				default:
					return c.thaw(target)
				}
			}, err
		}}
		go func() {
			defer close(ended)
			_ = serve(theirs, report, k)
			report.Close()
		}()
		kill := func() {
			once.Do(func() { close(killed) })
			theirs.CloseWithError(io.EOF)
			report.Close()
		}
		return &child{orders: orders, reports: reports, kill: kill, wait: func() { <-ended }}, nil
	}
}

// held starts a freezer that holds cgroups to the duties, and returns it.
func held(t *testing.T, c *cgroups, hangs func() bool, duties ...float64) *Freezer {
	t.Helper()
	h, err := newHelper(spawning(c, hangs), c.kernel())
	if err != nil {
		t.Fatal(err)
	}
	f := &Freezer{protected: func() []int { return []int{42} }, helper: h, held: map[string]*hold{}}
	for i, d := range duties {
		if err := f.begin(groupNumber(i), d); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func groupNumber(i int) cgroup.Group {
	return cgroup.Group{Hierarchy: cgroup.Hierarchy{Version: cgroup.V2}, Path: fmt.Sprintf("/%d", i), ID: uint64(i)}
}

func never() bool { return false }

func TestDutiesAreMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCgroups()
		duties := []float64{MinDuty, 0.3, 0.5, 0.95}
		f := held(t, c, never, duties...)
		const length = time.Minute
		time.Sleep(length)
		for i, d := range duties {
			ran := 1 - c.frozenFor(i).Seconds()/length.Seconds()
			if ran < d-0.01 || ran > d+0.01 {
				t.Errorf("a cgroup with the duty %v ran for %.3f of the time", d, ran)
			}
		}
		for i, h := range f.Held() {
			if h.Duty != duties[i] || h.Times == 0 || h.Refused != 0 || h.Frozen == 0 {
				t.Errorf("%+v", h)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if n := c.frozen(); n != 0 {
			t.Errorf("%d cgroups are frozen after Close", n)
		}
		if longest, _ := c.seen(); longest > maxFrozen {
			t.Errorf("a cgroup was frozen for %v at a time", longest)
		}
		// Nothing freezes any more.
		if len(c.protected) != 1 || c.protected[0] != 42 {
			t.Errorf("the protected processes in the order: %v", c.protected)
		}
		if err := f.begin(groupNumber(9), 0.5); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestDutyIsChangedWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCgroups()
		f := held(t, c, never, 0.9)
		time.Sleep(10 * time.Second)
		before := c.frozenFor(0)
		if err := f.begin(groupNumber(0), 0.2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		after := c.frozenFor(0) - before
		if before > 1100*time.Millisecond || after < 7500*time.Millisecond {
			t.Errorf("frozen for %v of 10 s at duty 0.9, %v at 0.2", before, after)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The daemon kills a helper that hangs, thaws, and starts another helper, which continues.
func TestHangingHelperIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCgroups()
		starts := 0
		f := held(t, c, func() bool { starts++; return starts%2 == 1 }, 0.1, 0.5)
		time.Sleep(20 * time.Second)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if starts != 2 {
			t.Errorf("%d helpers were started, not 2", starts)
		}
		longest, freezes := c.seen()
		if longest > maxFrozen+patience || longest <= maxFrozen {
			t.Errorf("a cgroup was frozen for %v at a time", longest)
		}
		if freezes < 100 || c.frozen() != 0 {
			t.Errorf("%d freezes, %d cgroups are frozen", freezes, c.frozen())
		}
	})
}

// Helpers that always hang are started once a second, not more often.
func TestHelpersAreNotStartedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCgroups()
		starts := 0
		f := held(t, c, func() bool { starts++; return true }, 0.1)
		time.Sleep(20 * time.Second)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if starts < 10 || starts > 21 || c.frozen() != 0 {
			t.Errorf("%d helpers in 20 s; %d cgroups are frozen", starts, c.frozen())
		}
	})
}

func TestRefusalsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCgroups()
		c.refuse = errors.New("it contains a DataNode")
		f := held(t, c, never, 0.5)
		time.Sleep(10*time.Second + period/2)
		state := f.Held()[0]
		if state.Refused != int(10*time.Second/period) || state.Times != 0 || state.Why == nil || !strings.Contains(state.Why.Error(), "DataNode") {
			t.Errorf("%+v", state)
		}
		c.mu.Lock()
		c.refuse = cgroup.ErrGone
		c.mu.Unlock()
		time.Sleep(period)
		state = f.Held()[0]
		time.Sleep(time.Minute) // the cycle of a removed cgroup has ended
		if again := f.Held()[0]; !errors.Is(state.Why, cgroup.ErrGone) || again.Refused != state.Refused {
			t.Errorf("%+v, %+v", state, again)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// If the helper cannot thaw, the daemon tries, and tries again in each cycle and in Close. If all attempts
// fail, Close returns an error.
func TestDaemonThawsWhatTheHelperCannot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for failures := 1; failures <= 4; failures++ {
			c := newCgroups()
			c.stuck = failures
			f := held(t, c, never, 0.5)
			time.Sleep(period + period/2 + time.Millisecond) // the first freeze has ended
			why := f.Held()[0].Why
			if why == nil || errors.Is(why, errStuck) != (failures > 1) {
				t.Errorf("%d failures: %v", failures, why)
			}
			if n := c.frozen(); (n != 0) != (failures > 1) {
				t.Errorf("%d failures: %d cgroups are frozen", failures, n)
			}
			if failures == 4 {
				time.Sleep(2 * period)
			}
			if err := f.Close(); (err != nil) != (failures == 3) || err != nil && !errors.Is(err, errStuck) {
				t.Errorf("%d failures: Close returns %v", failures, err)
			}
			if n := c.frozen(); (n != 0) != (failures == 3) {
				t.Errorf("%d failures: %d cgroups are frozen after Close", failures, n)
			}
		}
	})
}

// The end of the pipe thaws everything at once, in the middle of a freeze.
func TestHelperThawsWhenTheDaemonEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCgroups()
		theirs, orders := io.Pipe()
		ended := make(chan error)
		go func() { ended <- serve(theirs, io.Discard, c.kernel()) }()
		fmt.Fprintln(orders, `{"id":1,"target":"a","for_ns":150000000}`)
		fmt.Fprintln(orders, `{"id":2,"target":"b","for_ns":3600000000000}`)
		fmt.Fprintln(orders, `{"id":3,"thaw":true}`)
		time.Sleep(100 * time.Millisecond)
		if n := c.frozen(); n != 2 {
			t.Errorf("%d cgroups are frozen, not 2", n)
		}
		orders.Close()
		err := <-ended
		if longest, _ := c.seen(); err != nil || c.frozen() != 0 || longest != 100*time.Millisecond {
			t.Errorf("%v; %d cgroups are frozen, one was for %v", err, c.frozen(), longest)
		}
	})
}

// The helper bounds the time of each freeze, whatever the order says. After an order that it cannot parse, it
// thaws everything and ends.
func TestHelperHasBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCgroups()
		theirs, orders := io.Pipe()
		ended := make(chan error)
		go func() { ended <- serve(theirs, io.Discard, c.kernel()) }()
		fmt.Fprintln(orders, `{"id":1,"target":"a","for_ns":3600000000000}`)
		time.Sleep(time.Second)
		if longest, _ := c.seen(); longest != maxFrozen || c.frozen() != 0 {
			t.Errorf("an order for an hour froze for %v", longest)
		}
		fmt.Fprintln(orders, `{"id":2,"target":"a","for_ns":100000000}`)
		fmt.Fprintln(orders, `freeze!`)
		if err := <-ended; err == nil || c.frozen() != 0 {
			t.Errorf("%v; %d cgroups are frozen", err, c.frozen())
		}
	})
}

// Orders in any form leave nothing frozen when the pipe ends.
func FuzzServe(f *testing.F) {
	f.Add(`{"id":1,"target":"a","for_ns":0}` + "\n" + `{"id":1,"target":"b","for_ns":5}` + "\n")
	f.Add(`{"id":1,"target":"a","for_ns":-5}` + "\n" + `{"id":2,"thaw":true}` + "\nx")
	f.Fuzz(func(t *testing.T, orders string) {
		c := newCgroups()
		_ = serve(strings.NewReader(orders), io.Discard, c.kernel())
		if n := c.frozen(); n != 0 {
			t.Errorf("%d cgroups are frozen", n)
		}
	})
}

func FuzzParseTarget(f *testing.F) {
	f.Add("v1 12 /a b")
	f.Add("v2 18446744073709551615 /")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := parseTarget(text); err == nil && got.String() != text {
			t.Errorf("%q was read as %q", text, got)
		}
	})
}

func TestDutiesHaveBounds(t *testing.T) {
	f := &Freezer{}
	for _, bad := range []float64{0, MinDuty - 0.001, 1.001, -1} {
		if err := f.Hold(nil, groupNumber(0), bad, ""); err == nil || !strings.Contains(err.Error(), "duty") {
			t.Errorf("duty %v: %v", bad, err)
		}
	}
	if got := frozenTime(MinDuty); got > maxFrozen || got < maxFrozen*9/10 {
		t.Errorf("at the smallest duty a cgroup is frozen for %v", got)
	}
}
