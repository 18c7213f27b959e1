package containers

import (
	"fmt"
	"io"
	"text/tabwriter"

	"penstock/lab/chart"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/figures"
	"penstock/lab/experiment/report"
)

// column is a figure of a job.
type column struct {
	head, title, unit string // head is short, for the table
	of                func(Job) float64
}

var columns = []column{
	{"TIME s", "Figures 6 and 8: time", "s", seconds},
	{"MB/s", "Throughput", "MB/s", rate},
	{"CPU", "Busy part of the machine's CPUs", "part", func(j Job) float64 { return j.CPU }},
	{"SWITCHES/s", "Context switches", "1/s", func(j Job) float64 { return j.SwitchesPerSecond }},
	{"SWITCHES/MB", "Context switches for each MB", "1/MB", Job.SwitchesPerMB},
	{"RUN QUEUE us", "Delay in the run queue of a dispatch, mean", "us", func(j Job) float64 { return j.RunDelayUS }},
	{"TRIP p50 us", "Round trip between two containers, median", "us", p50},
	{"p99 us", "Round trip between two containers, p99", "us", p99},
	{"mean us", "Round trip between two containers, mean", "us", func(j Job) float64 { return j.Trip.MeanUS }},
	{"of it QUEUE us", "Delay in the run queue of a round trip, mean", "us", func(j Job) float64 { return j.Trip.RunDelayUS }},
	{"DISKS", "Busy part of the disks, mean", "part", func(j Job) float64 { return j.Disks }},
	{"JOINED MB", "Bytes that went straight from socket to socket", "MB", func(j Job) float64 { return j.JoinedMB }},
}

// WriteTable writes a table for each job: medians over the runs and, of times, the least and the greatest value. Below
// are the paper's statements and the knees.
func (r Result) WriteTable(w io.Writer) error {
	for _, job := range works {
		fmt.Fprintf(w, "%s, %d MiB; replication 2, with one container 1.\n", job.title, r.Setup.Bytes/mib)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprint(t, "SET-UP\tN\tRUNS")
		for _, c := range columns {
			fmt.Fprint(t, "\t"+c.head)
		}
		fmt.Fprintln(t)
		for _, setUp := range SetUps {
			for _, n := range r.Setup.Nodes {
				times := r.each(job.kind, Row{n, setUp}, seconds)
				if len(times) == 0 {
					continue
				}
				fmt.Fprintf(t, "%s\t%d\t%d", setUp, n, len(times))
				for i, c := range columns {
					values := r.each(job.kind, Row{n, setUp}, c.of)
					cell := fmt.Sprintf("%.4g", figures.Median(values))
					if i == 0 && len(values) > 1 {
						one := claims.Of("", "", values...)
						cell += fmt.Sprintf(" (%.4g-%.4g)", one.Low, one.High)
					}
					fmt.Fprint(t, "\t"+cell)
				}
				fmt.Fprintln(t)
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(w, "the paper, on a physical machine: %s\nthe paper, on a virtual machine: %s\n\n", job.paper, paperVirtual)
	}
	fmt.Fprintf(w, "The knee is the smallest number of containers from which on a doubling adds less than %.0f %% throughput.\n", 100*leastGain)
	for _, f := range r.findings() {
		fmt.Fprintln(w, f)
	}
	if !r.Setup.BridgeFilter {
		fmt.Fprintln(w, "This kernel has no br_netfilter: addresses between containers are not translated.")
	}
	return nil
}

// Report returns the HTML page.
func (r Result) Report() report.Report {
	headline := "Hadoop against the number of its containers"
	for _, f := range r.findings() {
		if f.SetUp == NAT && f.Knee > 0 {
			headline = fmt.Sprintf("%s gains little from more than %d containers; cause: %s", f.Job, f.Knee, f.Cause)
			break
		}
	}
	return report.Report{Headline: headline, Claims: r.claims(), Table: r.WriteTable, Setup: r.Setup, Charts: r.charts(),
		About: `Hadoop in network namespaces on a bridge with translated addresses, each with a DataNode, a NodeManager and a small modelled disk. The jobs move the same number of bytes with each number of containers: ` +
			`Figures 6 and 8 of "Analysis of a Network IO Bottleneck in Big Data Environments based on Docker Containers". With the set-up "joined", the two sockets of each connection between containers are joined. Dashed lines are knees.`}
}

// colours are those of the set-ups in charts.
var colours = map[string]chart.Colour{NAT: chart.Orange, Joined: chart.Purple}

// charts draws each figure against the number of containers, with a panel for each job.
func (r Result) charts() (all []chart.Chart) {
	for _, c := range columns {
		lines := chart.Lines{Title: c.title, Columns: 2, Width: 330, Height: 220}
		for _, n := range r.Setup.Nodes {
			lines.XTicks = append(lines.XTicks, float64(n))
		}
		drawn := false
		for _, w := range works {
			panel := chart.Panel{Title: w.title, X: "containers", Y: c.unit}
			for _, setUp := range SetUps {
				line := chart.Line{Name: setUp, Colour: colours[setUp], Dots: true}
				for _, n := range r.Setup.Nodes {
					if values := r.each(w.kind, Row{n, setUp}, c.of); len(values) > 0 {
						line.Points = append(line.Points, chart.Point{X: float64(n), Y: figures.Median(values)})
					}
				}
				if len(line.Points) > 0 {
					panel.Lines, drawn = append(panel.Lines, line), true
				}
			}
			if f, ok := find("", "", r.points(w.kind, NAT)); ok && f.Knee > 0 {
				panel.Marks = []float64{float64(f.Knee)}
			}
			lines.Panels = append(lines.Panels, panel)
		}
		if drawn {
			all = append(all, lines)
		}
	}
	return all
}
