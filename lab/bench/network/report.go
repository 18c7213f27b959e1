package network

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"penstock/lab/chart"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/figures"
	"penstock/lab/experiment/report"
	"penstock/ops/network"
)

// column is a figure in a table.
type column struct {
	head string
	of   func(r Result, setUp string) []float64
}

// WriteTable writes a table for each figure of the paper: medians over the runs, and the least and the greatest value.
func (r Result) WriteTable(w io.Writer) error {
	streams := func(way string, f func(network.Stream) float64) func(Result, string) []float64 {
		return func(r Result, setUp string) []float64 {
			return r.each(network.PartStreams, value(ofStream(way, f)), setUp)
		}
	}
	trips := func(part network.Part, protocol string, pairs int, f func(network.Trip) float64) func(Result, string) []float64 {
		return func(r Result, setUp string) []float64 { return r.each(part, value(ofTrip(protocol, pairs, f)), setUp) }
	}
	for _, way := range ways() {
		if err := r.table(w, fmt.Sprintf("Figure 3: streams of one pair, %s; CPU time of the machine, and of the threads that send and receive.", way),
			"without NAT as native Linux; NAT noticeably more CPU time",
			[]column{{"MB/s", streams(way, rate)}, {"MACHINE s/GB", streams(way, machineCPU)}, {"THREADS s/GB", streams(way, threadsCPU)}}); err != nil {
			return err
		}
	}
	for _, part := range []network.Part{network.PartTrips, network.PartAwake} {
		title := fmt.Sprintf("Figure 4: round trips of one pair, %d bytes and %d bytes", r.Setup.RequestBytes, r.Setup.AnswerBytes)
		if part == network.PartAwake {
			title += ", while no CPU halts"
		}
		var columns []column
		for _, protocol := range []string{network.TCP, network.UDP} {
			name := strings.ToUpper(protocol)
			columns = append(columns, column{name + " mean", trips(part, protocol, 1, mean)}, column{"p50", trips(part, protocol, 1, p50)},
				column{"p99 us", trips(part, protocol, 1, p99)})
		}
		if err := r.table(w, title+".", "Docker's layer adds about 5 us; a virtual machine adds 30 us, which is 80 %; TCP and UDP very similar", columns); err != nil {
			return err
		}
	}
	for _, part := range []network.Part{network.PartPairs, network.PartBusy} {
		title := "Figure 5: round trips of N pairs of containers that share one CPU"
		if part == network.PartBusy {
			title += fmt.Sprintf(", while each container performs %d operations per minute", r.Setup.OperationsPerMinute)
		}
		for _, x := range []struct {
			name string
			of   func(network.Trip) float64
		}{
			{"mean, us", mean}, {"p50, us", p50}, {"p99, us", p99},
			{"delay in the run queue per trip, us", func(t network.Trip) float64 { return t.RunDelayUS }},
			{"CPU time of both ends per trip, us", func(t network.Trip) float64 { return t.CPUUS }},
			{"context switches of both ends per trip", func(t network.Trip) float64 { return t.Switches }},
		} {
			var columns []column
			for _, n := range r.Setup.Pairs {
				columns = append(columns, column{fmt.Sprintf("N = %d", n), trips(part, network.TCP, n, x.of)})
			}
			if err := r.table(w, title+": "+x.name+".", "proportional to N", columns); err != nil {
				return err
			}
		}
	}
	for _, f := range r.findings() {
		fmt.Fprintln(w, f)
	}
	return nil
}

// table writes a table with a row for each set-up that has a figure of it, and the paper's statement below.
func (r Result) table(w io.Writer, title, paper string, columns []column) error {
	var rows []string
	for _, name := range setUpNames() {
		row, found := name, false
		for _, c := range columns {
			values := c.of(r, name)
			found = found || len(values) > 0
			row += "\t" + spread(values)
		}
		if found {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w, title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "SET-UP")
	for _, c := range columns {
		fmt.Fprint(t, "\t"+c.head)
	}
	fmt.Fprintln(t)
	for _, row := range rows {
		fmt.Fprintln(t, row)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "the paper: %s\n\n", paper)
	return err
}

// spread returns the median of values, and the least and the greatest one if there are several.
func spread(values []float64) string {
	c := claims.Of("", "", values...)
	switch {
	case c.Runs == 0:
		return "-"
	case c.Runs == 1:
		return fmt.Sprintf("%.4g", c.Value)
	}
	return fmt.Sprintf("%.4g (%.4g-%.4g)", c.Value, c.Low, c.High)
}

// findings returns the sentences of ops/network about the medians of all runs.
func (r Result) findings() []string {
	all := network.Result{BridgeFilter: r.Setup.BridgeFilter, Setup: r.Setup.Setup}
	for _, name := range setUpNames() {
		m := network.Measured{Name: name}
		if v := r.each(network.PartStreams, value(ofStream(network.Transmit, threadsCPU)), name); len(v) > 0 {
			m.Streams = append(m.Streams, network.Stream{Way: network.Transmit, ThreadsCPU: figures.Median(v)})
		}
		for _, part := range []network.Part{network.PartTrips, network.PartAwake} {
			if v := r.each(part, value(ofTrip(network.TCP, 1, p50)), name); len(v) > 0 {
				m.Trips = append(m.Trips, network.Trip{Protocol: network.TCP, Pairs: 1, Awake: part == network.PartAwake, P50US: figures.Median(v)})
			}
		}
		for _, n := range r.Setup.Pairs {
			us := r.each(network.PartPairs, value(ofTrip(network.TCP, n, mean)), name)
			delay := r.each(network.PartPairs, value(ofTrip(network.TCP, n, func(t network.Trip) float64 { return t.RunDelayUS })), name)
			if len(us) > 0 && len(delay) > 0 {
				m.Trips = append(m.Trips, network.Trip{Protocol: network.TCP, Pairs: n, OneCPU: true, MeanUS: figures.Median(us), RunDelayUS: figures.Median(delay)})
			}
		}
		all.SetUps = append(all.SetUps, m)
	}
	return all.Findings()
}

// Report returns the HTML page.
func (r Result) Report() report.Report {
	headline := "What a container network costs"
	if added := r.each(network.PartPairs, difference(ofTrip(network.TCP, 1, mean)), network.BridgeNAT, network.Host); len(added) > 0 {
		headline = fmt.Sprintf("Bridge and NAT add %.1f us to a round trip", figures.Median(added))
	}
	return report.Report{Headline: headline, Claims: r.claims(), Table: r.WriteTable, Setup: r.Setup, Charts: r.charts(),
		About: `Streams, round trips, and round trips against the number of containers, between processes in network namespaces: over loopback, a bridge, a bridge with Docker's rules, and a published port. ` +
			`Figures 3 to 5 of "Analysis of a Network IO Bottleneck in Big Data Environments based on Docker Containers".`}
}

// colours are those of the set-ups in charts.
var colours = map[string]chart.Colour{network.Host: chart.Grey, network.Bridge: chart.Blue, network.BridgeFilter: chart.Teal, network.BridgeNAT: chart.Orange,
	Runc: chart.Brown, network.Joined: chart.Purple}

// charts draws the paper's figures.
func (r Result) charts() (all []chart.Chart) {
	cpu := chart.Bars{Title: "Figure 3: CPU time of the machine", X: "s/GB", Width: 660}
	speed := chart.Bars{Title: "Figure 3: throughput", X: "MB/s", Width: 660}
	for _, way := range ways() {
		cpu.Rows = r.row(cpu.Rows, way, network.PartStreams, ofStream(way, machineCPU))
		speed.Rows = r.row(speed.Rows, way, network.PartStreams, ofStream(way, rate))
	}
	// The tail has a chart of its own, because on a busy machine it is many times the median.
	median := chart.Bars{Title: "Figure 4: median round trip of one pair", X: "us", Width: 660}
	tail := chart.Bars{Title: "Figure 4: p99 of round trips of one pair", X: "us", Width: 660}
	for _, protocol := range []string{network.TCP, network.UDP} {
		for _, part := range []network.Part{network.PartTrips, network.PartAwake} {
			name := strings.ToUpper(protocol)
			if part == network.PartAwake {
				name += ", CPUs kept awake"
			}
			median.Rows = r.row(median.Rows, name, part, ofTrip(protocol, 1, p50))
			tail.Rows = r.row(tail.Rows, name, part, ofTrip(protocol, 1, p99))
		}
	}
	for _, b := range []chart.Bars{cpu, speed, median, tail} {
		if len(b.Rows) > 0 {
			all = append(all, b)
		}
	}
	for _, part := range []network.Part{network.PartPairs, network.PartBusy} {
		if lines, ok := r.growth(part); ok {
			all = append(all, lines)
		}
	}
	return all
}

// row appends a row with a bar for each set-up that has the figure.
func (r Result) row(rows []chart.Row, name string, part network.Part, f figure) []chart.Row {
	row := chart.Row{Name: name}
	for _, setUp := range setUpNames() {
		if c := claims.Of("", "", r.each(part, value(f), setUp)...); c.Runs > 0 {
			row.Bars = append(row.Bars, chart.Bar{Kind: setUp, Colour: colours[setUp], Value: c.Value, Low: c.Low, High: c.High, Runs: c.Runs, Label: fmt.Sprintf("%.4g", c.Value)})
		}
	}
	if len(row.Bars) == 0 {
		return rows
	}
	return append(rows, row)
}

// growth draws Figure 5: round trips, and what they consist of, against the number of pairs.
func (r Result) growth(part network.Part) (lines chart.Lines, ok bool) {
	lines = chart.Lines{Title: "Figure 5: pairs of containers that share one CPU", Columns: 2, Width: 330, Height: 220}
	if part == network.PartBusy {
		lines.Title += fmt.Sprintf(", each container with %d operations per minute", r.Setup.OperationsPerMinute)
	}
	for _, n := range r.Setup.Pairs {
		lines.XTicks = append(lines.XTicks, float64(n))
	}
	for _, x := range []struct {
		title, unit string
		of          func(network.Trip) float64
	}{
		{"mean round trip", "us", mean}, {"p99", "us", p99}, {"delay in the run queue, per trip", "us", func(t network.Trip) float64 { return t.RunDelayUS }},
		{"CPU time of both ends, per trip", "us", func(t network.Trip) float64 { return t.CPUUS }},
	} {
		panel := chart.Panel{Title: x.title, X: "pairs of containers", Y: x.unit}
		for _, setUp := range setUpNames() {
			line := chart.Line{Name: setUp, Colour: colours[setUp], Dots: true}
			for _, n := range r.Setup.Pairs {
				if v := r.each(part, value(ofTrip(network.TCP, n, x.of)), setUp); len(v) > 0 {
					line.Points = append(line.Points, chart.Point{X: float64(n), Y: figures.Median(v)})
				}
			}
			if len(line.Points) > 0 {
				panel.Lines, ok = append(panel.Lines, line), true
			}
		}
		lines.Panels = append(lines.Panels, panel)
	}
	return lines, ok
}
