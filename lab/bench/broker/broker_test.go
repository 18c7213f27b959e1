package broker

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"google.golang.org/grpc"

	served "penstock/broker"
	"penstock/broker/certs"
	"penstock/lab/daemon"
	"penstock/wire/cluster"
)

var usual = Request{Nodes: 3, Applications: 10, Served: 0.5, Changes: 0.5, Period: 100 * time.Millisecond, Duration: time.Second}

func TestRequestBounds(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Request)
		good   bool
	}{
		"usual":                 {func(*Request) {}, true},
		"most nodes":            {func(q *Request) { q.Nodes = MaxNodes }, true},
		"too many nodes":        {func(q *Request) { q.Nodes = MaxNodes + 1 }, false},
		"no nodes":              {func(q *Request) { q.Nodes = 0 }, false},
		"too many applications": {func(q *Request) { q.Applications = MaxApplications + 1 }, false},
		"no applications":       {func(q *Request) { q.Applications = 0 }, false},
		"all served":            {func(q *Request) { q.Served = 1 }, true},
		"more than all":         {func(q *Request) { q.Served = 1.01 }, false},
		"none served":           {func(q *Request) { q.Served = 0 }, false},
		"no changes":            {func(q *Request) { q.Changes = 0 }, true},
		"more changes than all": {func(q *Request) { q.Changes = 1.01 }, false},
		"too often":             {func(q *Request) { q.Period-- }, false},
		"too seldom":            {func(q *Request) { q.Period, q.Duration = 30*time.Second+1, time.Hour }, false},
		"shortest":              {func(q *Request) { q.Duration = Windows * q.Period }, true},
		"too short":             {func(q *Request) { q.Duration = Windows*q.Period - 1 }, false},
		"storms below none":     {func(q *Request) { q.Storms = -1 }, false},
		"too many storms":       {func(q *Request) { q.Storms = MaxStorms + 1 }, false},
	} {
		q := usual
		test.change(&q)
		if err := q.Validate(); (err == nil) != test.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGenerate checks that a real broker accepts emulated nodes, and that their delays are those of
// received answers.
func TestGenerate(t *testing.T) {
	dir := t.TempDir()
	q := usual
	q.Nodes = 2*markers + 1
	names := []string{"broker"}
	for i := range q.Nodes {
		names = append(names, name(i))
	}
	if _, err := certs.Make(dir, names, nil); err != nil {
		t.Fatal(err)
	}
	secure, err := cluster.Files{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "broker.pem"), Key: filepath.Join(dir, "broker.key")}.Server()
	if err != nil {
		t.Fatal(err)
	}
	b, err := served.New(t.Context(), served.Options{})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener, options := b.LimitConnections(listener, secure, served.Limits{PerAddress: q.Nodes})
	server := grpc.NewServer(options...)
	cluster.RegisterNodesServer(server, b)
	ctx, cancel := context.WithCancel(t.Context())
	questions, ask := io.Pipe()
	answers, answer := io.Pipe()
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	running.Go(func() { _ = server.Serve(listener) })
	running.Go(func() {
		if err := Generate(ctx, questions, answer); err != nil {
			t.Error(err)
		}
		answer.Close()
	})
	defer running.Wait()
	defer server.Stop()
	defer cancel()
	defer ask.Close()
	if err := json.NewEncoder(ask).Encode(Load{Request: q, Address: address, Certs: dir, Count: q.Nodes}); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(answers)
	fresh := int64(0) // totals with a change of another node
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := io.WriteString(ask, "\n"); err != nil {
			t.Fatal(err)
		}
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var l Look
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		stale, err := hdrhistogram.Decode(l.Stale)
		if err != nil {
			t.Fatal(err)
		}
		fresh += stale.TotalCount()
		if l.In == q.Nodes && l.Entries > 0 && l.Sent > 0 && l.Got > 0 && fresh > int64(q.Nodes) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute: %+v, %d totals", l, fresh)
		}
		time.Sleep(20 * time.Millisecond)
	}

	// The figures that a window and a storm read exist.
	pages, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Close()
	running.Go(func() { _ = b.ServeMetrics(pages, nil) })
	m, err := (&daemon.Daemon{Address: pages.Addr().String()}).Scrape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "go_memstats_heap_inuse_bytes", "go_goroutines"} {
		if m.Value(name) <= 0 {
			t.Errorf("%s is %v", name, m.Value(name))
		}
	}
	if _, ok := m["go_cpu_classes_gc_total_cpu_seconds_total"]; !ok {
		t.Error("no CPU time of garbage collection")
	}
	if count, sum := m.Observed("broker_report_seconds"); count < float64(q.Nodes) || sum <= 0 {
		t.Errorf("%v reports took %v s", count, sum)
	}
	if peak, err := peakResident(os.Getpid()); err != nil || peak < 1<<20 {
		t.Errorf("largest resident size %d, %v", peak, err)
	}
}

// TestARoundIsAWindowOrAStorm checks that a journal's content gives the same result.
func TestARoundIsAWindowOrAStorm(t *testing.T) {
	r := Result{Request: usual, CPUs: 2, Go: "go"}
	for _, one := range []Round{{Window: &Window{Cores: 1, Delay: Quantiles{P99: 5}}}, {Window: &Window{Cores: 3}}, {Storm: &Storm{Seconds: 7, Resident: 2 * mib}, Peak: 3 * mib}} {
		text, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		var again Round
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		r.add(again)
	}
	var table, page strings.Builder
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"broker, CPU                          2 cores  (1 to 3)", "  resident then                      2 MiB    (2 to 2)", "broker, resident at most             3 MiB"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &table)
		}
	}
	if c := r.claims(); len(c) != 5 || c[0].Name != "3 nodes: broker's CPU" || c[0].Value != 2 || c[4].Name != "3 nodes: all answered after a restart" {
		t.Errorf("%+v", c)
	}
	if err := r.Report().Write(&page, time.Unix(0, 0)); err != nil || !strings.Contains(page.String(), "3 nodes: broker&#39;s memory") {
		t.Errorf("%v:\n%s", err, &page)
	}
}

// TestWaitsEnd checks that the wait ends for nodes that do not join, or do not notice the broker's
// end.
func TestWaitsEnd(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("the last line\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := encode(newHistogram())
	look, err := json.Marshal(Look{In: 1, Delay: h, Stale: h})
	if err != nil {
		t.Fatal(err)
	}
	questions, in := io.Pipe()
	out, answer := io.Pipe()
	t.Cleanup(func() { in.Close() })
	go func() {
		for lines := bufio.NewScanner(questions); lines.Scan(); {
			fmt.Fprintf(answer, "%s\n", look)
		}
	}()
	b := &bench{q: Request{Nodes: 2}, broker: &daemon.Daemon{Log: log}, sources: []*source{{in: in, out: bufio.NewReader(out)}}, most: 100 * time.Millisecond}
	if _, err := b.await(t.Context(), 2, "start"); err == nil || !strings.Contains(err.Error(), "1 of 2 nodes") {
		t.Errorf("one of two nodes is in: %v", err)
	}
	if _, err := b.await(t.Context(), 0, "end"); err == nil || !strings.Contains(err.Error(), "1 of 2 nodes") || !strings.Contains(err.Error(), "the last line") {
		t.Errorf("one of two nodes is not out: %v", err)
	}
}
