package broker

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/HdrHistogram/hdrhistogram-go"

	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/report"
)

// Result is the benchmark's result, in the form of --json.
type Result struct {
	Request
	CPUs    int            `json:"cpus"`
	Go      string         `json:"go"`
	Windows []Window       `json:"windows"`
	Storms  []Storm        `json:"joining"`
	Peak    int64          `json:"broker_peak_resident_bytes"` // largest of all brokers that a storm has killed; 0: none
	Claims  []claims.Claim `json:"claims"`
}

// setup is everything that may change a figure.
type setup struct {
	Request
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
}

// Round is a part of the measurement: a window or a storm.
type Round struct {
	Window *Window `json:"window,omitempty"`
	Storm  *Storm  `json:"storm,omitempty"`
	Peak   int64   `json:"peak_resident_bytes,omitempty"` // of the broker that the storm has killed
}

func (r *Result) add(one Round) {
	if one.Window != nil {
		r.Windows = append(r.Windows, *one.Window)
	}
	if one.Storm != nil {
		r.Storms = append(r.Storms, *one.Storm)
	}
	r.Peak = max(r.Peak, one.Peak)
}

// Window holds the figures of a part of the steady load.
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
	Entries    float64   `json:"entries_per_s"` // in reports
	In         float64   `json:"to_broker_bytes_per_s"`
	Out        float64   `json:"from_broker_bytes_per_s"`
	Delay      Quantiles `json:"answer_ms"` // from a report to its answer
	Stale      Quantiles `json:"total_ms"`  // from a change at a node until another node has a total with that change
	Load       float64   `json:"load_cores"`
}

// Quantiles holds quantiles in milliseconds.
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

// Storm holds the figures of a storm, in which all nodes reconnect to a restarted broker.
type Storm struct {
	Seconds  float64 `json:"seconds"` // from the broker's start until every node has an answer
	CPU      float64 `json:"broker_cpu_s"`
	Lost     int64   `json:"attempts_lost"` // of nodes, during that time
	Resident float64 `json:"broker_resident_bytes"`
}

const mib = 1 << 20

// figure is a row of the table: a figure of windows or storms.
type figure[T any] struct {
	name, unit string
	of         func(T) float64
}

var ofWindows = []figure[Window]{
	{"broker, CPU", "cores", func(w Window) float64 { return w.Cores }},
	{"  a report and its answer", "us", func(w Window) float64 { return w.PerReport }},
	{"  of which garbage collection", "%", func(w Window) float64 { return 100 * w.Collecting }},
	{"  booking, with the wait for it", "us", func(w Window) float64 { return w.Booked }},
	{"broker, resident", "MiB", func(w Window) float64 { return w.Resident / mib }},
	{"  heap in use", "MiB", func(w Window) float64 { return w.Heap / mib }},
	{"  goroutines", "", func(w Window) float64 { return w.Goroutines }},
	{"reports", "/s", func(w Window) float64 { return w.Reports }},
	{"  entries in them", "/s", func(w Window) float64 { return w.Entries }},
	{"to the broker", "MiB/s", func(w Window) float64 { return w.In / mib }},
	{"from the broker", "MiB/s", func(w Window) float64 { return w.Out / mib }},
	{"answer after, p50", "ms", func(w Window) float64 { return w.Delay.P50 }},
	{"  p99", "ms", func(w Window) float64 { return w.Delay.P99 }},
	{"  max", "ms", func(w Window) float64 { return w.Delay.Max }},
	{"change to another node's total, p50", "ms", func(w Window) float64 { return w.Stale.P50 }},
	{"  p99", "ms", func(w Window) float64 { return w.Stale.P99 }},
	{"  max", "ms", func(w Window) float64 { return w.Stale.Max }},
	{"emulated nodes, CPU", "cores", func(w Window) float64 { return w.Load }},
}

var ofStorms = []figure[Storm]{
	{"broker started to all nodes in", "s", func(s Storm) float64 { return s.Seconds }},
	{"  broker's CPU", "s", func(s Storm) float64 { return s.CPU }},
	{"  resident then", "MiB", func(s Storm) float64 { return s.Resident / mib }},
	{"  attempts of nodes that failed", "", func(s Storm) float64 { return float64(s.Lost) }},
}

// rows returns the figures with their medians and extremes. If there are no windows or storms,
// there are no rows.
func rows[T any](all []T, figures []figure[T]) (rows []claims.Claim) {
	for _, f := range figures {
		var values []float64
		for _, one := range all {
			values = append(values, f.of(one))
		}
		rows = claims.Add(rows, claims.Of(f.name, f.unit, values...))
	}
	return rows
}

// WriteJSON writes the figures in the documented form.
func (r Result) WriteJSON(w io.Writer) error {
	r.Claims = r.claims()
	return experiment.WriteJSON(w, r)
}

// Report returns the HTML page.
func (r Result) Report() report.Report {
	return report.Report{Headline: fmt.Sprintf("Cost of a broker with %d nodes", r.Nodes), Claims: r.claims(), Table: r.WriteTable, Setup: setup{r.Request, r.CPUs, r.Go},
		About: "A real broker process is measured. The nodes are emulated on the same machine, over loopback with mutual TLS and the real protocol."}
}

// WriteTable prints the medians and extremes for a terminal.
func (r Result) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%d nodes, a report every %v, %d applications, %.0f %% of the entries change in a report; %d CPUs, %s\n\n",
		r.Nodes, r.Period, r.Applications, 100*r.Changes, r.CPUs, r.Go)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range append(rows(r.Windows, ofWindows), rows(r.Storms, ofStorms)...) {
		fmt.Fprintf(t, "%s\t%.4g %s\t(%.4g to %.4g)\n", c.Name, c.Value, c.Unit, c.Low, c.High)
	}
	if r.Peak > 0 {
		fmt.Fprintf(t, "broker, resident at most\t%.4g MiB\t\n", float64(r.Peak)/mib)
	}
	return t.Flush()
}
