package decision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"text/tabwriter"
	"time"

	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
)

// Bounds of a request.
const (
	MaxFlows  = 1 << 16
	MinLength = 10 * time.Millisecond
	MinTrips  = 100
	MaxTrips  = 10_000_000
)

// Request is one benchmark with the options of the command line.
type Request struct {
	Flows    []int         // numbers of flows to measure with, each 1..MaxFlows
	Length   time.Duration // of each measurement of a scheduler or of the device loop, at least MinLength
	Trips    int           // round trips of each kind, MinTrips..MaxTrips
	AgentJar string
	NoJava   bool // leave the agent's side out
	Progress func(format string, args ...any)
}

// Validate returns an error for a request that cannot be measured.
func (q Request) Validate() error {
	for _, n := range q.Flows {
		if n < 1 || n > MaxFlows {
			return fmt.Errorf("--flows %d: use 1 to %d", n, MaxFlows)
		}
	}
	switch {
	case len(q.Flows) == 0:
		return errors.New("--flows: give at least one number")
	case q.Length < MinLength:
		return fmt.Errorf("--length %v: use at least %v", q.Length, MinLength)
	case q.Trips < MinTrips || q.Trips > MaxTrips:
		return fmt.Errorf("--trips %d: use %d to %d", q.Trips, MinTrips, MaxTrips)
	}
	return nil
}

// Result is the benchmark's result, in the form of --json. Figures that were not measured are
// empty, and LeftOut has the reason.
type Result struct {
	CPUs       int            `json:"cpus"`
	Go         string         `json:"go"`
	Decisions  []Decision     `json:"decisions"`
	Quanta     []Quantum      `json:"device_loop"`
	RoundTrips []Timing       `json:"round_trips_go"` // client and server in one process
	Agent      []Timing       `json:"agent"`          // calls of the agent, and trips from its JVM
	LeftOut    string         `json:"left_out,omitempty"`
	Claims     []claims.Claim `json:"claims"`
}

// Perform measures everything that can be measured on this machine.
func Perform(ctx context.Context, q Request) (Result, error) {
	res := Result{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	if err := q.Validate(); err != nil {
		return res, err
	}
	if q.Progress == nil {
		q.Progress = func(string, ...any) {}
	}
	for _, algorithm := range algorithms {
		q.Progress("scheduler %s", algorithm.name)
		for _, flows := range q.Flows {
			d, err := decide(ctx, algorithm, flows, q.Length)
			if err != nil {
				return res, err
			}
			res.Decisions = append(res.Decisions, d)
		}
	}
	q.Progress("device loop")
	for _, flows := range q.Flows {
		one, err := deviceLoop(ctx, flows, q.Length)
		if err != nil {
			return res, err
		}
		res.Quanta = append(res.Quanta, one)
	}
	dir, err := os.MkdirTemp("", "penstock-decision-")
	if err != nil {
		return res, err
	}
	defer os.RemoveAll(dir)
	q.Progress("round trips")
	if res.RoundTrips, err = roundTrips(ctx, dir, q.Trips); err != nil {
		return res, err
	}
	if q.NoJava {
		res.LeftOut = "the agent's side (--no-java)"
		return res, nil
	}
	if missing := javaMissing(q.AgentJar); missing != nil {
		res.LeftOut = "the agent's side: " + missing.Error()
		return res, nil
	}
	q.Progress("the agent's side, in a JVM")
	res.Agent, err = measureAgent(ctx, dir, q.AgentJar, q.Trips)
	return res, err
}

func roundTrips(ctx context.Context, dir string, n int) (_ []Timing, err error) {
	path, stop, err := echo(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	s, stopServer, err := serve(ctx, dir, "go.sock", 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopServer()) }()
	var all []Timing
	for _, measure := range []func() (Timing, error){
		func() (Timing, error) { return echoTrips(ctx, path, n) },
		func() (Timing, error) { return openTrips(ctx, "open to mark, resident", s.path, residentBlock, n) },
		func() (Timing, error) { return openTrips(ctx, "open to mark, cold", s.path, coldBlock, n) },
	} {
		one, err := measure()
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// claims returns the times of one decision, of a quantum's way through the device loop, and of the
// agent's calls: the median as the value, the 99th percentile as the high end.
func (r Result) claims() []claims.Claim {
	of := func(name string, p50, p99 float64) claims.Claim {
		return claims.Claim{Name: name, Unit: "ns", Value: p50, Low: p50, High: p99, Runs: 1, Source: "p50 and p99 within one run"}
	}
	all := []claims.Claim{}
	for _, d := range r.Decisions {
		all = append(all, of(fmt.Sprintf("%s, one decision among %d flows", d.Algorithm, d.Flows), d.P50, d.P99))
	}
	for _, q := range r.Quanta {
		all = append(all, of(fmt.Sprintf("device loop, one quantum among %d flows", q.Flows), q.P50, q.P99))
	}
	for _, t := range r.Agent {
		all = append(all, of("agent, "+t.Name, t.P50, t.P99))
	}
	return all
}

// WriteJSON writes the figures in the documented form.
func (r Result) WriteJSON(w io.Writer) error {
	r.Claims = r.claims()
	return experiment.WriteJSON(w, r)
}

// WriteTable prints the figures for a terminal.
func (r Result) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "one decision\tflows\tp50\tp99\tallocations\t")
	for _, d := range r.Decisions {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%.2f\t\n", d.Algorithm, d.Flows, nanos(d.P50), nanos(d.P99), d.Allocs)
	}
	for _, q := range r.Quanta {
		fmt.Fprintf(t, "device loop, a quantum\t%d\t%s\t%s\t%.2f\t\n", q.Flows, nanos(q.P50), nanos(q.P99), q.Allocs)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, part := range []struct {
		title   string
		timings []Timing
	}{{"round trip, in one process (Go)", r.RoundTrips}, {"the agent's side (Java)", r.Agent}} {
		if len(part.timings) == 0 {
			continue
		}
		fmt.Fprintln(t)
		fmt.Fprintf(t, "%s\tp50\tp99\tcount\t\n", part.title)
		for _, m := range part.timings {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t\n", m.Name, nanos(m.P50), nanos(m.P99), m.Count)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if r.LeftOut != "" {
		fmt.Fprintln(w, "\nLeft out:", r.LeftOut)
	}
	return nil
}

func nanos(ns float64) string {
	if ns < 1000 {
		return fmt.Sprintf("%.3g ns", ns)
	}
	return fmt.Sprintf("%.1f us", ns/1000)
}
