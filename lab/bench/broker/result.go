package broker

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/HdrHistogram/hdrhistogram-go"

	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/figures"
)

// Result is the form of --json.
type Result struct {
	Request
	CPUs    int            `json:"cpus"`
	Go      string         `json:"go"`
	Windows []Window       `json:"windows"`
	Storms  []Storm        `json:"joining"`
	Peak    int64          `json:"broker_peak_resident_bytes"` // of all brokers of the run that a storm ended; 0: none
	Claims  []claims.Claim `json:"claims"`
}

// Window is a part of the steady load.
type Window struct {
	Seconds    float64   `json:"seconds"`
	Cores      float64   `json:"broker_cores"` // CPU seconds a second
	PerReport  float64   `json:"broker_cpu_us_per_report"`
	Collecting float64   `json:"broker_gc_part"` // of its CPU time
	Booked     float64   `json:"broker_booking_us"`
	Resident   float64   `json:"broker_resident_bytes"`
	Heap       float64   `json:"broker_heap_bytes"`
	Goroutines float64   `json:"broker_goroutines"`
	Reports    float64   `json:"reports_per_s"`
	Entries    float64   `json:"entries_per_s"` // that reports have
	In         float64   `json:"to_broker_bytes_per_s"`
	Out        float64   `json:"from_broker_bytes_per_s"`
	Delay      Quantiles `json:"answer_ms"` // from a report to its answer
	Stale      Quantiles `json:"total_ms"`  // from a change at a node to the total with it at another
	Load       float64   `json:"load_cores"`
}

// Quantiles are of milliseconds.
type Quantiles struct {
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
	Count int64   `json:"count"`
}

func quantiles(h *hdrhistogram.Histogram) Quantiles {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	return Quantiles{P50: at(50), P99: at(99), Max: float64(h.Max()) / 1000, Count: h.TotalCount()}
}

// Storm is all nodes coming back to a broker that was started again.
type Storm struct {
	Seconds  float64 `json:"seconds"` // from its start until every node has an answer
	CPU      float64 `json:"broker_cpu_s"`
	Lost     int64   `json:"attempts_lost"` // of nodes, meanwhile
	Resident float64 `json:"broker_resident_bytes"`
}

// WriteJSON writes the figures in the documented form.
func (r Result) WriteJSON(w io.Writer) error {
	r.Claims = r.claims()
	return experiment.WriteJSON(w, r)
}

// WriteTable prints the medians and extremes for a terminal.
func (r Result) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%d nodes, a report every %v, %d applications, %.0f %% of an entry's rates new in a report; %d CPUs, %s\n\n",
		r.Nodes, r.Period, r.Applications, 100*r.Changes, r.CPUs, r.Go)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, unit string, scale float64, count int, value func(i int) float64) {
		if count == 0 {
			return
		}
		var all []float64
		for i := range count {
			all = append(all, value(i)*scale)
		}
		fmt.Fprintf(t, "%s\t%.4g %s\t(%.4g to %.4g)\n", name, figures.Median(all), unit, slices.Min(all), slices.Max(all))
	}
	const mib = 1.0 / (1 << 20)
	for _, f := range []struct {
		name, unit string
		scale      float64
		of         func(w Window) float64
	}{
		{"broker, CPU", "cores", 1, func(w Window) float64 { return w.Cores }},
		{"  a report and its answer", "us", 1, func(w Window) float64 { return w.PerReport }},
		{"  of it garbage collection", "%", 100, func(w Window) float64 { return w.Collecting }},
		{"  booking, with the wait for it", "us", 1, func(w Window) float64 { return w.Booked }},
		{"broker, resident", "MiB", mib, func(w Window) float64 { return w.Resident }},
		{"  heap in use", "MiB", mib, func(w Window) float64 { return w.Heap }},
		{"  goroutines", "", 1, func(w Window) float64 { return w.Goroutines }},
		{"reports", "/s", 1, func(w Window) float64 { return w.Reports }},
		{"  entries in them", "/s", 1, func(w Window) float64 { return w.Entries }},
		{"to the broker", "MiB/s", mib, func(w Window) float64 { return w.In }},
		{"from the broker", "MiB/s", mib, func(w Window) float64 { return w.Out }},
		{"answer after, p50", "ms", 1, func(w Window) float64 { return w.Delay.P50 }},
		{"  p99", "ms", 1, func(w Window) float64 { return w.Delay.P99 }},
		{"  max", "ms", 1, func(w Window) float64 { return w.Delay.Max }},
		{"change to another node's total, p50", "ms", 1, func(w Window) float64 { return w.Stale.P50 }},
		{"  p99", "ms", 1, func(w Window) float64 { return w.Stale.P99 }},
		{"  max", "ms", 1, func(w Window) float64 { return w.Stale.Max }},
		{"emulated nodes, CPU", "cores", 1, func(w Window) float64 { return w.Load }},
	} {
		row(f.name, f.unit, f.scale, len(r.Windows), func(i int) float64 { return f.of(r.Windows[i]) })
	}
	row("broker started to all nodes in", "s", 1, len(r.Storms), func(i int) float64 { return r.Storms[i].Seconds })
	row("  broker's CPU", "s", 1, len(r.Storms), func(i int) float64 { return r.Storms[i].CPU })
	row("  resident then", "MiB", mib, len(r.Storms), func(i int) float64 { return r.Storms[i].Resident })
	row("  attempts of nodes that failed", "", 1, len(r.Storms), func(i int) float64 { return float64(r.Storms[i].Lost) })
	if r.Peak > 0 {
		fmt.Fprintf(t, "broker, resident at most\t%.4g MiB\t\n", float64(r.Peak)*mib)
	}
	return t.Flush()
}
