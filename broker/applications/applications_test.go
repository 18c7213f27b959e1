package applications

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"penstock/core/policy"
)

// fakeSource is a source whose answers the test chooses.
type fakeSource struct {
	mu   sync.Mutex
	apps []Application
	err  error
	took time.Duration
	asks []time.Time
}

func (*fakeSource) name() string                  { return "told" }
func (*fakeSource) owns(flow string) bool         { return true }
func (*fakeSource) address() string               { return "" }
func (s *fakeSource) takeBusyTime() time.Duration { return s.took }
func (s *fakeSource) list(_ context.Context, add func(Application)) error {
	s.mu.Lock()
	s.asks = append(s.asks, time.Now())
	apps, err := s.apps, s.err
	s.mu.Unlock()
	time.Sleep(s.took)
	for _, a := range apps {
		add(a)
	}
	return err
}

func (s *fakeSource) say(apps []Application, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apps, s.err = apps, err
}

func ofTest(s *fakeSource) *Directory {
	return &Directory{log: slog.New(slog.DiscardHandler), tick: time.Second, period: period, sources: []*source{{clusterManager: s}},
		apps: map[string]*entry{}, pending: map[string]bool{}}
}

// TestWhoIsGone: an application that has ended holds nothing and is dropped after a while. It is
// not dropped while the source is down.
func TestWhoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSource{apps: []Application{{Facts: policy.Facts{Flow: "a", User: "u", Bandwidth: 5}, State: "RUNNING"}}}
		d := ofTest(s)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		changes := map[string]int{}
		done := make(chan struct{})
		go func() {
			d.Run(ctx, func(flows []string) {
				mu.Lock()
				defer mu.Unlock()
				for _, f := range flows {
					changes[f]++
				}
			})
			close(done)
		}()
		// at checks the state at a later moment: the facts, and how often they have changed.
		at := func(later time.Duration, what string, want policy.Facts, changed int) {
			t.Helper()
			time.Sleep(later)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if f := d.Facts("a"); !same(f, want) || changes["a"] != changed {
				t.Errorf("%s: %+v after %d changes, want %+v after %d", what, f, changes["a"], want, changed)
			}
		}
		all := policy.Facts{Flow: "a", User: "u", Bandwidth: 5}
		at(time.Millisecond, "told", all, 1)
		s.say(nil, errors.New("down"))
		at(2*retention, "while the source is down", all, 1)
		s.say(nil, nil)
		holdsNothing := policy.Facts{Flow: "a", User: "u"}
		at(settleTime-time.Second, "back, and not all is known there yet", all, 1)
		at(period+2*time.Second, "gone", holdsNothing, 2)
		at(retention-period-time.Second, "just before it is dropped", holdsNothing, 2)
		at(2*period, "forgotten", policy.Facts{Flow: "a"}, 2)
		cancel()
		<-done
	})
}

// TestRest: the slower a source answers, the less often it is polled. A source without an active server is polled at each
// tick, and one that fails at once is not.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for took, between := range map[time.Duration]time.Duration{0: time.Second, 100 * time.Millisecond: period, 10 * time.Second: 50 * time.Second} {
			s := &fakeSource{took: took}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			ofTest(s).Run(ctx, func([]string) {})
			cancel()
			if got := s.asks[3].Sub(s.asks[2]); got < between || got > between+time.Second {
				t.Errorf("a list that takes %v is requested every %v", took, got)
			}
		}
		for err, between := range map[error]time.Duration{
			fmt.Errorf("%w: both are standbys", errNoneActive): time.Second,
			errors.New("refused at once"):                      period,
		} {
			s := &fakeSource{err: err}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			ofTest(s).Run(ctx, func([]string) {})
			cancel()
			if got := s.asks[3].Sub(s.asks[2]); got != between {
				t.Errorf("while the error is %q, a list is requested every %v", err, got)
			}
		}
	})
}

// TestTakeOver: a source that has just started and does not know all allocations does not lower
// the known ones. After a while, only its answers count.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := func(since, bandwidth int64) []Application {
			return []Application{{Facts: policy.Facts{Flow: "a", User: "u", Bandwidth: bandwidth}, activeSince: since}}
		}
		s := &fakeSource{apps: app(1, 90)}
		d := ofTest(s)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			d.Run(ctx, func([]string) {})
			close(done)
		}()
		at := func(later time.Duration, what string, want int64) {
			t.Helper()
			time.Sleep(later)
			synctest.Wait()
			if got := d.Facts("a").Bandwidth; got != want {
				t.Errorf("%s: it holds %d MB/s, want %d", what, got, want)
			}
		}
		at(time.Millisecond, "told", 90)
		s.say(app(1, 40), nil)
		at(2*period, "a part was given back", 40)
		s.say(app(2, 0), nil)
		at(2*period, "another server knows no allocations yet", 40)
		s.say(app(2, 60), nil)
		at(2*period, "it holds more", 60)
		s.say(app(2, 20), nil)
		at(2*period, "not all allocations are known", 60)
		at(settleTime, "all allocations are known", 20)
		s.say(app(0, 10), nil)
		at(2*period, "a source without a start time", 10)
		s.say([]Application{{Facts: policy.Facts{Flow: "a", User: "u", Bandwidth: 60}, activeSince: 3, Ended: true}}, nil)
		at(2*period, "it has ended", 0)

		s.say(app(4, 90), nil)
		at(2*settleTime, "at work again", 90)
		s.say(nil, errors.New("down"))
		at(time.Hour, "the source is down", 90)
		s.say(nil, nil)
		at(2*period, "it is back, and has not read the applications", 90)
		s.say(app(5, 5), nil)
		at(2*period, "it has read them, but does not know all allocations", 90)
		at(settleTime, "all allocations are known", 5)

		s.say(app(6, 90), nil)
		at(2*settleTime, "it holds more", 90)
		least := int64(90)
		for since := range int64(60) { // the source restarts each minute
			s.say(app(100+since, 1), nil)
			time.Sleep(time.Minute)
			least = min(least, d.Facts("a").Bandwidth)
		}
		if least != 1 {
			t.Errorf("while the source restarts again and again, the application keeps %d MB/s", least)
		}
		cancel()
		<-done
	})
}
