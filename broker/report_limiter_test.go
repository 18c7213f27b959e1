package broker

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/core/coord"
	"penstock/wire/cluster"
)

// TestReportLimiters: a new stream continues with the budget of the node's last one, and the number
// of waiting streams is bounded.
func TestReportLimiters(t *testing.T) {
	p := reportLimiters{byNode: map[string]*rate.Limiter{}}
	now := time.Now()
	for i := range reportBurst {
		if w, err := p.begin("n", time.Second, now); w > 0 || err != nil {
			t.Fatalf("stream %d waits %v, %v", i+1, w, err)
		}
	}
	for i := range maxWaitingReports + 1 {
		if w, err := p.begin("n", time.Second, now); w != time.Duration(i+1)*time.Second/reportRateFactor || err != nil {
			t.Fatalf("stream %d too many waits %v, %v", i+1, w, err)
		}
	}
	if _, err := p.begin("n", time.Second, now); err != errReportRate {
		t.Errorf("one more: %v", err)
	}
	if w, err := p.begin("other", time.Second, now); w > 0 || err != nil {
		t.Errorf("another node waits %v, %v", w, err)
	}
	p.sweep(now.Add(maxPeriod + time.Second))
	if len(p.byNode) != 1 {
		t.Errorf("%d nodes are remembered, want only the one that has used its budget", len(p.byNode))
	}
	p.sweep(now.Add(time.Hour))
	if len(p.byNode) != 0 {
		t.Error("a node with a full budget is remembered")
	}
	for i := range maxReportLimiters {
		p.byNode[fmt.Sprint(i)] = newReportLimiter(time.Second)
	}
	if _, err := p.begin("n", time.Second, now); err != coord.ErrTooManyMembers {
		t.Errorf("a name beyond the bound: %v", err)
	}
	if w, err := p.begin("7", 30*time.Second, now); w > 0 || err != nil {
		t.Errorf("a known one: %v, %v", w, err)
	}
}

// TestChangedPeriod: a node that reports more often than before is not limited by its old period.
func TestChangedPeriod(t *testing.T) {
	now := time.Now()
	p := reportLimiters{byNode: map[string]*rate.Limiter{}}
	for range reportBurst - 1 {
		p.wait("n", 30*time.Second, now)
	}
	if w, err := p.begin("n", time.Second, now); w > 0 || err != nil {
		t.Errorf("report %d waits %v, %v; want no wait", reportBurst, w, err)
	}
	if w := p.wait("n", time.Second, now); w != time.Second/reportRateFactor {
		t.Errorf("report %d waits %v, want %v", reportBurst+1, w, time.Second/reportRateFactor)
	}
}

// TestManyStreams: a node that opens and closes streams again and again is delayed and then
// refused. Its log lines are limited.
func TestManyStreams(t *testing.T) {
	b := bounded(t, nil, 100)
	slowed := func() bool { return count(t, b.Broker, "penstock_broker_reports_slowed_total") != "0" }
	for i := 0; !slowed(); i++ { // on a busy machine, a stream may take as long as the limit demands
		if i == 10*reportBurst {
			t.Fatalf("of %d streams, none was slowed", i)
		}
		s := dial(t, b.address)
		if err := s.Send(&cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "n", PeriodMs: 1000}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatalf("stream %d: %v", i+1, err)
		}
	}
	b.reportLimits.mu.Lock()
	for range reportBurst + 2*maxWaitingReports { // more reports than can be answered before the next stream
		b.reportLimits.byNode["n"].Reserve()
	}
	b.reportLimits.mu.Unlock()
	s := dial(t, b.address)
	if err := s.Send(&cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "n", PeriodMs: 1000}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	var log bytes.Buffer
	quiet, err := New(t.Context(), Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	log.Reset()
	began := time.Now()
	for range 100 {
		quiet.logNode("a node", &session{node: &cluster.Node{Name: "n"}})
	}
	if n, most := strings.Count(log.String(), "\n"), logLinesPerSecond*(2+int(time.Since(began)/time.Second)); n > most {
		t.Errorf("%d lines of 100 nodes", n)
	}
}

// TestStartupByPeriod: totals are incomplete for as long as nodes with that period may not have
// reported.
func TestStartupByPeriod(t *testing.T) {
	b := serve(t, "127.0.0.1:0", "default: 1")
	for period, want := range map[time.Duration]time.Duration{100 * time.Millisecond: startupWait, time.Second: startupWait,
		10 * time.Second: 20 * time.Second, time.Hour: 2 * maxPeriod} {
		s, err := b.join(from{ctx: callFrom("127.0.0.1")}, &cluster.Report{Sequence: 1,
			Node: &cluster.Node{Name: "n", PeriodMs: uint32(period.Milliseconds())}}, b.leadership.State().Epoch)
		if err != nil {
			t.Fatal(err)
		}
		for ago, settles := range map[time.Duration]bool{want - time.Second: true, want + time.Millisecond: false} {
			b.mu.Lock()
			b.startup.Reset(time.Since(b.created) - ago)
			got := b.answer(s).GetSettling()
			b.mu.Unlock()
			if got != settles {
				t.Errorf("a period of %v, %v after the beginning: settling is %v", period, ago, got)
			}
		}
	}
}

// TestLastReportIgnoresWallClock: the time of the last report does not depend on the wall clock.
func TestLastReportIgnoresWallClock(t *testing.T) {
	b := serve(t, "127.0.0.1:0", "default: 1")
	s := b.settled(t, "n", "192.0.2.1")
	if at := time.Duration(s.lastReport.Load()); at < 0 || at > time.Since(b.created) {
		t.Errorf("the last report is %v after the broker's start", at)
	}
	if at := b.lastReportAt(s); time.Since(at) > time.Minute || at.After(time.Now().Add(time.Minute)) {
		t.Errorf("the last report is at %v", at)
	}
}
