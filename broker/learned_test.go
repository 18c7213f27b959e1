package broker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"penstock/broker/leadership"
	"penstock/broker/store"
	"penstock/core/forecast"
)

// library is a store that counts the writes of what forecasts have learned, and may not answer.
type library struct {
	store.Store
	mu     sync.Mutex
	writes int
	err    error
}

func (l *library) Learned(ctx context.Context) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	return l.Store.Learned(ctx)
}

func (l *library) KeepLearned(ctx context.Context, record []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	l.writes++
	return l.Store.KeepLearned(ctx, record)
}

func (l *library) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *library) written() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes
}

// teach lets a broker learn from a run of a kind.
func teach(t *testing.T, b *Broker, name string) {
	t.Helper()
	kind, _ := forecast.KindOf("MAPREDUCE", "me", name)
	b.mu.Lock()
	defer b.mu.Unlock()
	f := &forecaster{kind: kind, learns: true}
	b.options.Life = func(string) Life { return Life{Ended: true, Succeeded: true} }
	for i := range 11 {
		f.trace.Observe(forecast.Observation{Time: time.Duration(i) * time.Minute, Progress: float64(i) / 10, Share: 0.5, Service: float64(10 * i)})
	}
	b.learn(name, f, 11*time.Minute)
}

func runsOf(b *Broker, name string) int {
	kind, _ := forecast.KindOf("MAPREDUCE", "me", name)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.history.Curve(kind).Runs()
}

// run runs a broker, and returns a function that ends it.
func run(b *Broker) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { b.Run(ctx); close(done) }()
	return func() { cancel(); <-done }
}

func logged(t *testing.T, o Options) (*Broker, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	b, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return b, log
}

// TestLearnedOverARestart: what forecasts have learned is written once a minute, and at the end. The next broker has it.
func TestLearnedOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &library{Store: store.NewMemory()}
		first, log := logged(t, Options{Store: kept})
		end := run(first)
		time.Sleep(5 * time.Minute)
		if n := kept.written(); n != 0 {
			t.Errorf("%d writes, and nothing was learned", n)
		}
		teach(t, first, "a")
		time.Sleep(time.Second)
		if n := kept.written(); n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
		for range 30 {
			teach(t, first, "a")
			time.Sleep(time.Second)
		}
		if n := kept.written(); n != 1 {
			t.Errorf("%d writes within a minute", n)
		}
		time.Sleep(time.Minute)
		if n := kept.written(); n != 2 {
			t.Errorf("%d writes, want 2", n)
		}
		teach(t, first, "b")
		end()
		if n := kept.written(); n != 3 || strings.Contains(log.String(), "level=WARN") {
			t.Errorf("%d writes at the end\n%s", n, log)
		}
		second, _ := logged(t, Options{Store: kept})
		if a, b := runsOf(second, "a"), runsOf(second, "b"); a != 31 || b != 1 {
			t.Errorf("the next broker knows %d and %d runs", a, b)
		}
	})
}

// TestLearnedByTheNextLeader: each leader begins with what the leader before it has learned.
func TestLearnedByTheNextLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &library{Store: store.NewMemory()}
		var brokers []*Broker
		var offices []*office
		for range 2 {
			o := &office{changes: make(chan struct{}, 1)}
			b, _ := logged(t, Options{Store: kept, Leadership: o})
			defer run(b)()
			brokers, offices = append(brokers, b), append(offices, o)
		}
		epoch := uint64(0)
		lead := func(who int) {
			epoch++
			offices[1-who].set(leadership.State{Epoch: epoch})
			offices[who].set(leadership.State{Leading: true, Epoch: epoch})
			time.Sleep(2 * time.Minute)
		}
		lead(0)
		teach(t, brokers[0], "a")
		teach(t, brokers[1], "lost") // it does not lead
		time.Sleep(2 * time.Minute)
		lead(1)
		if n := runsOf(brokers[1], "a"); n != 1 {
			t.Errorf("the second leader knows %d runs", n)
		}
		teach(t, brokers[1], "a")
		teach(t, brokers[1], "b")
		time.Sleep(2 * time.Minute)
		lead(0)
		if a, b := runsOf(brokers[0], "a"), runsOf(brokers[0], "b"); a != 2 || b != 1 {
			t.Errorf("the first leader knows %d and %d runs when it leads again", a, b)
		}
	})
}

// TestAStoreThatDoesNotAnswer: nothing is written before the record was read, and forecasts do not wait for it for long.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &library{Store: store.NewMemory()}
		first, _ := logged(t, Options{Store: kept})
		end := run(first)
		teach(t, first, "a")
		end()

		kept.fail(errors.New("no answer"))
		o := &office{changes: make(chan struct{}, 1)}
		second, log := logged(t, Options{Store: kept, Leadership: o})
		defer run(second)()
		waits := func() bool {
			second.mu.Lock()
			defer second.mu.Unlock()
			return second.awaitsLearned()
		}
		if waits() {
			t.Error("a broker that does not lead waits")
		}
		o.set(leadership.State{Leading: true, Epoch: 1})
		time.Sleep(time.Second)
		if !waits() {
			t.Error("a new leader does not wait")
		}
		time.Sleep(failoverWait)
		if waits() {
			t.Error("it still waits")
		}
		teach(t, second, "b")
		time.Sleep(3 * time.Minute)
		kept.fail(nil)
		time.Sleep(3 * time.Minute)
		if a, b := runsOf(second, "a"), runsOf(second, "b"); a != 1 || b != 1 || kept.written() != 2 {
			t.Errorf("%d and %d runs, %d writes", a, b, kept.written())
		}
		if n := strings.Count(log.String(), "cannot be read"); n != 1 {
			t.Errorf("%d lines\n%s", n, log)
		}
	})
}

// TestLearnedCannotBeUsed: a damaged record is replaced and one of a newer version is not. The policy is in force in either case.
func TestLearnedCannotBeUsed(t *testing.T) {
	for record, test := range map[string]struct {
		warning string
		writes  int
	}{
		"penstock-forecasts 1 damaged\n": {"will be replaced", 1},
		"\x00":                           {"will be replaced", 1},
		"penstock-forecasts 2 x\nyz":     {"stays as it is", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			kept := &library{Store: store.NewMemory()}
			if err := kept.Append(t.Context(), store.Version{Number: 1, Text: []byte("default: 7\n"), Author: "a", Time: time.Now()}); err != nil {
				t.Fatal(err)
			}
			if err := kept.Store.KeepLearned(t.Context(), []byte(record)); err != nil {
				t.Fatal(err)
			}
			b, log := logged(t, Options{Store: kept})
			end := run(b)
			teach(t, b, "a")
			end()
			if b.policy.Default != 7 || kept.written() != test.writes || strings.Count(log.String(), test.warning) != 1 || runsOf(b, "a") != 1 {
				t.Errorf("%q: default %d, %d writes\n%s", record, b.policy.Default, kept.written(), log)
			}
		})
	}
}
