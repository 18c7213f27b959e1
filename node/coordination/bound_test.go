package coordination

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/core/arbiter"
	"penstock/core/policy"
	"penstock/core/reserve"
	"penstock/wire/cluster"
)

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// TestBound: the node follows the strongest mode that the policy allows, and keeps it while no broker answers. The broker hears the
// mode in force.
func TestBound(t *testing.T) {
	var b broker
	address := serve(t, &b)
	var most atomic.Int64
	most.Store(-1)
	c, err := New(Options{Node: "n", Brokers: []string{address}, Period: 100 * time.Millisecond, Devices: func() []Device { return nil },
		Rights: func(map[string]Right) {}, Bound: func(m arbiter.Mode) { most.Store(int64(m)) },
		Mode: func() arbiter.Mode { return arbiter.Observe }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	defer running.Wait()
	defer cancel()
	eventually(t, "an answer", func() bool { return b.answers.Load() > 0 && b.mode.Load() == int64(cluster.Mode_MODE_OBSERVE) })
	if most.Load() != -1 || c.State().Bound != arbiter.Enforce {
		t.Errorf("a policy without a mode bounds the node to %v", c.State().Bound)
	}
	for _, m := range []struct {
		wire cluster.Mode
		want arbiter.Mode
	}{{cluster.Mode_MODE_OBSERVE, arbiter.Observe}, {cluster.Mode_MODE_OFF, arbiter.Off}, {cluster.Mode_MODE_UNKNOWN, arbiter.Enforce}, {cluster.Mode_MODE_OFF, arbiter.Off}} {
		b.most.Store(int64(m.wire))
		eventually(t, m.wire.String(), func() bool { return most.Load() == int64(m.want) && c.State().Bound == m.want })
	}
	c.bound(cluster.Mode(77))
	if c.State().Bound != arbiter.Enforce {
		t.Error("a mode that is not known bounds the node")
	}
}

// TestLimitLease: limits end without a broker, and come back with its answer. Weights and other rates stay.
func TestLimitLease(t *testing.T) {
	var got map[string]Right
	c, err := New(Options{Node: "n", Brokers: []string{"127.0.0.1:1"}, Period: time.Second, Devices: func() []Device { return nil },
		Rights: func(r map[string]Right) { got = maps.Clone(r) }, LimitLease: time.Minute, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	full := Right{Weight: 3, Limit: 1 << 20, Total: policy.Total{Reserve: 5, Limit: 7}, Reserve: reserve.Rate{Bytes: 1 << 20, Strict: true}}
	c.rights.set("a", full, c.isEntry)
	c.totals["a"] = struct{}{}
	c.expire()
	if got != nil || c.State().Lapsed {
		t.Errorf("before the first answer: %v", got)
	}
	c.state.Answered = time.Now().Add(-time.Minute + time.Hour/2)
	c.expire()
	if got != nil {
		t.Errorf("within the lease: %v", got)
	}
	c.state.Answered = time.Now().Add(-time.Minute)
	c.expire()
	want := Right{Weight: 3, Total: policy.Total{Reserve: 5}, Reserve: reserve.Rate{Bytes: 1 << 20}}
	if r := got["a"]; r.Weight != want.Weight || r.Limit != 0 || r.Total != want.Total || r.Reserve != want.Reserve || !c.State().Lapsed {
		t.Errorf("after the lease: %+v", r)
	}
	if _, err := c.take(&cluster.Answer{Sequence: 1}); err != nil {
		t.Fatal(err)
	}
	if r := got["a"]; r.Limit != full.Limit || r.Total != full.Total || r.Reserve != full.Reserve || c.State().Lapsed {
		t.Errorf("after an answer: %+v", r)
	}
	if _, kept := c.totals["a"]; !kept {
		t.Error("the application's total rates are forgotten")
	}
}
