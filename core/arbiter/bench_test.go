package arbiter_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/core/arbiter"
	"penstock/core/reserve"
)

// endless is a file without resident pages that is completely written.
type endless struct{}

func (endless) Missing(_, length int64) int64 { return length }
func (endless) Saved(_, _ int64) int64        { return 0 }
func (endless) Written() (int64, bool)        { return 1 << 62, true }
func (endless) Deleted() bool                 { return false }

// busy returns an arbiter whose flows are all backlogged forever.
type busy struct {
	a       *arbiter.Arbiter
	now     time.Duration
	flying  []*arbiter.Request
	pos     map[*arbiter.Stream]int64
	written bool
}

func newBusy(tb testing.TB, flows int, write, promised bool) *busy {
	cfg := diskConfig(2e9, 0)
	cfg.MaxFlows = flows + 1
	cfg.Algorithm, cfg.FixedDepth = "sfqd", 4
	a, err := arbiter.New(arbiter.Options{Config: cfg, Mode: arbiter.Enforce, Policy: func(flow string) arbiter.Rule {
		rule := arbiter.Rule{Weight: 1 + len(flow)*37%100, Mode: arbiter.Enforce}
		if promised && flow[len(flow)-1]%2 == 0 {
			rule.Reserve = reserve.Rate{Part: reserve.MinPart}
		}
		return rule
	}})
	if err != nil {
		tb.Fatal(err)
	}
	b := &busy{a: a, now: 1, pos: map[*arbiter.Stream]int64{}, written: write}
	for i := range flows {
		s := a.Open(b.now, arbiter.Opening{Flow: fmt.Sprint("flow ", i), Write: write, File: endless{}, To: 1 << 61})
		if write {
			a.Progress(b.now, s, 1<<50)
		}
	}
	b.decide()
	for range 4 * flows { // until all flows have completed their first quanta
		b.decision()
	}
	return b
}

func (b *busy) decide() {
	actions, _ := b.a.Decide(b.now)
	for i := range actions {
		if actions[i].Kind == arbiter.Start {
			b.flying = append(b.flying, actions[i].Request)
		}
	}
}

// decision ends a request and starts the next one. For reads, it also reports progress.
func (b *busy) decision() {
	r := b.flying[0]
	b.flying = b.flying[:copy(b.flying, b.flying[1:])]
	s, end, length := r.Stream, r.Offset+r.Length, r.Length
	b.now += 10 * time.Microsecond
	b.a.Done(b.now, r, arbiter.Result{Moved: length, Latency: 40 * time.Microsecond})
	if !b.written {
		b.a.Progress(b.now, s, end)
	}
	b.decide()
}

// processor returns the CPU time of the process. Other load on the machine affects it less than the
// elapsed time.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkDecision measures one decision of the arbiter with all flows backlogged: the end of a
// request and the start of the next one. It is measured with and without guaranteed rates. For reads, the reader's progress is a further event.
func BenchmarkDecision(b *testing.B) {
	for _, flows := range []int{10, 100, 1000, 10_000} {
		for _, what := range []string{"drains", "reads", "half of the drains reserved", "half of the reads reserved"} {
			b.Run(fmt.Sprintf("%s/flows=%d", what, flows), func(b *testing.B) {
				d := newBusy(b, flows, strings.Contains(what, "drains"), strings.Contains(what, "reserved"))
				b.ReportAllocs()
				begin := processor()
				for b.Loop() {
					d.decision()
				}
				b.ReportMetric(float64(processor()-begin)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// BenchmarkTick measures a tick, which comes every 100 ms.
func BenchmarkTick(b *testing.B) {
	for _, flows := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint("flows=", flows), func(b *testing.B) {
			d := newBusy(b, flows, false, true)
			b.ReportAllocs()
			begin := processor()
			for b.Loop() {
				d.now += 100 * time.Millisecond
				d.decide()
			}
			b.ReportMetric(float64(processor()-begin)/float64(b.N), "cpu-ns/op")
		})
	}
}

// TestDecisionsAllocateNothing checks that decisions on reads and on writes do not allocate.
func TestDecisionsAllocateNothing(t *testing.T) {
	for _, write := range []bool{false, true} {
		for _, promised := range []bool{false, true} {
			d := newBusy(t, 1000, write, promised)
			if got := testing.AllocsPerRun(20_000, d.decision); got != 0 {
				t.Errorf("writes %v, reserves %v: %v allocations a decision", write, promised, got)
			}
		}
	}
}
