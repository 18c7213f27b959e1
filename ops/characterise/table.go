package characterise

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"penstock/core/character"
)

// Write writes a profile as text.
func Write(w io.Writer, application string, p *character.Profile, limits character.Thresholds) error {
	fmt.Fprintf(w, "%s is %s: over %v on %d nodes it uses", application, character.Class(p.Intensive), (p.To - p.From).Round(time.Second), p.Nodes)
	for r := range character.Resources {
		fmt.Fprintf(w, " %s of %v (intensive from %s)", percent(p.Mean[r]), r, percent(limits[r]))
		if r < character.Resources-1 {
			fmt.Fprint(w, ",")
		}
	}
	fmt.Fprintf(w, "\nin all: CPU %.1f s, disk %.1f MB read and %.1f MB written in %.1f s of device time, network %.1f MB, memory up to %.0f MB\n\n",
		p.Total.CPU.Seconds(), float64(p.Total.Read)/1e6, float64(p.Total.Written)/1e6, p.Total.Disk.Seconds(), float64(p.Total.Network)/1e6, float64(p.Total.Memory)/1e6)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tFROM\tTO\tCPU\tMEMORY\tDISK\tNETWORK\tCLASS")
	row := func(name string, from, to time.Duration, u character.Use, class string) {
		fmt.Fprintf(table, "%s\t%.0f s\t%.0f s\t%s\t%s\t%s\t%s\t%s\n", name, (from - p.From).Seconds(), (to - p.From).Seconds(), percent(u[character.CPU]), percent(u[character.Memory]),
			percent(u[character.Disk]), percent(u[character.Network]), class)
	}
	row("mean", p.From, p.To, p.Mean, character.Class(p.Intensive))
	row("peak", p.From, p.To, p.Peak, "")
	for i, f := range p.Phases {
		row(fmt.Sprintf("phase %d", i+1), f.From, f.To, f.Use, character.Class(f.Intensive))
	}
	return table.Flush()
}

// WritePairs writes the predictions for all pairs of applications, each with itself too.
func WritePairs(w io.Writer, applications []string, profiles []*character.Profile) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\t"+strings.Join(applications, "\t"))
	for i, a := range profiles {
		cells := []string{applications[i]}
		for _, b := range profiles {
			s := character.Pair(a, b)
			cell := fmt.Sprintf("%s %.2f", s.Verdict(), s.Slowdown)
			switch {
			case s.Memory > 1:
				cell = fmt.Sprintf("no: memory %s", percent(s.Memory))
			case s.Slowdown > 1:
				cell += " " + s.Contended.String()
			}
			cells = append(cells, cell)
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	return table.Flush()
}
