package soak

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"penstock/lab/experiment"
	"penstock/lab/experiment/progress"
	"penstock/lab/experiment/report"
)

// WriteTable prints the figures and the verdict.
func (r Result) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "seed %d, Hadoop %s: %d kills (%d of the daemon, %d of DataNodes) among %d faults, in %s\n\n",
		r.Setup.Seed, r.Setup.Hadoop, r.Kills, r.DaemonKill, r.NodeKill, len(r.Outcomes), progress.Clock(time.Duration(r.Seconds*float64(time.Second))))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "fault\ttimes\tlongest operation, ms: median\tp99\tmax\tfailed\tover after, s: median\tmax\t")
	for _, k := range r.Kinds {
		if k.Count == 0 {
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t%.0f\t%d\t%.1f\t%.1f\t\n", k.Kind, k.Count, k.Stall.Median, k.Stall.P99, k.Stall.Max,
			k.Failed, k.Took.Median/1000, k.Took.Max/1000)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	o := r.Orphan
	fmt.Fprintf(w, "\nwaits at gates without a daemon, as counted by the agents: in %d of %d kills and stops of the daemon, %d waits;\n"+
		"  the longest of each, from the daemon's last sign of life: median %.0f ms, p99 %.0f, max %.0f\n", o.Held, o.Faults, o.Waits, o.MS.Median, o.MS.P99, o.MS.Max)
	if o.Elsewhere > 0 {
		fmt.Fprintf(w, "  and %d waits during other faults, the longest %.0f ms\n", o.Elsewhere, o.ElsewhereMS)
	}
	if r.Setup.Phases {
		fmt.Fprintf(w, "  and in tasks: %d of %d waited, %d times, the longest %.0f ms\n", r.TaskWaits.Held, r.TaskWaits.Tasks, r.TaskWaits.Waits, r.TaskWaits.LongMS)
		fmt.Fprintf(w, "  kills by the TeraSort's phase:")
		for _, p := range phases {
			fmt.Fprintf(w, " %s %d", p, r.Phases[p])
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "  (%d waits at gates during faults in all; %d operations of the probe)\n\n", r.GateWaits, r.ProbeOps)
	for _, l := range r.Loads {
		fmt.Fprintf(w, "%s: %d rounds of %.0f s (median), %d jobs failed permanently, %d rounds wrong\n", l.Load, l.Rounds, l.Seconds, l.Failed, l.Wrong)
	}
	fmt.Fprintf(w, "files: %d written and read back, %d MiB; %d attempts repeated\n\n", r.Files.Files, r.Files.Bytes/mib, r.Files.Again)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "process\tlives\tlongest, s\tRSS max, MiB\tKiB/min\tdescriptors max\tper min\tthreads max\tper min\t")
	for _, g := range r.Growth {
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t%+.0f\t%d\t%+.2f\t%d\t%+.2f\t\n", g.Process, g.Lives, g.LongestS, float64(g.RSSKiBMax)/1024,
			g.RSSKiBPerMin, g.FDsMax, g.FDsPerMin, g.ThreadsMax, g.ThreadsPerMin)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Good {
		_, err := fmt.Fprintln(w, "\nGOOD: nothing was lost, no operation waited long")
		return err
	}
	fmt.Fprintln(w, "\nNOT GOOD:")
	for _, f := range r.Findings {
		fmt.Fprintln(w, " -", f)
	}
	return nil
}

// WriteJSON writes everything.
func (r Result) WriteJSON(w io.Writer) error {
	r.Claims = r.claims()
	return experiment.WriteJSON(w, r)
}

// Report returns the HTML page.
func (r Result) Report() report.Report {
	return report.Report{Headline: fmt.Sprintf("%d kills under load: %d findings", r.Kills, len(r.Findings)), Claims: r.claims(), Table: r.WriteTable, Setup: r.Setup,
		About: "The daemon and the DataNodes of a real Hadoop are killed and stopped, and peers send them invalid data, while jobs run and files are written and read back. Intervals are from the median to the longest."}
}

// String returns the line about a finished fault, for the terminal.
func (o Outcome) String() string {
	text := fmt.Sprintf("#%d %s: over after %.1f s, longest operation %.0f ms", o.Number, o.Step, o.TookMS/1000, o.StallMS)
	if o.Phase != "" {
		text += ", in " + string(o.Phase)
	}
	if o.Orphans > 0 {
		text += fmt.Sprintf(", %d waits without a daemon, longest %.0f ms", o.Orphans, o.OrphanMS)
	}
	if len(o.Failed) > 0 {
		text += fmt.Sprintf(", %d operations FAILED: %.200s", len(o.Failed), o.Failed[0])
	}
	return text
}

// String returns the line about a finished round, for the terminal.
func (r Round) String() string {
	text := fmt.Sprintf("round %d of %s: correct, %.0f s", r.Number, r.Load, r.Seconds)
	if r.Wrong != "" {
		text = fmt.Sprintf("round %d of %s: WRONG: %s", r.Number, r.Load, r.Wrong)
	}
	for _, f := range r.Failed {
		text += "\n  a job failed permanently: " + f
	}
	return text
}
