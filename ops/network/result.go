package network

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// Result is the result of a measurement of several set-ups, in the form of --json.
type Result struct {
	KernelRelease string `json:"kernel_release"`
	CPUs          int    `json:"cpus"` // that this process may use
	// BridgeFilter is false if the kernel lacks br_netfilter. A bridge then passes packets to rules only if it
	// routes them, as it does for published ports.
	BridgeFilter bool       `json:"bridge_netfilter"`
	Setup        Setup      `json:"setup"`
	SetUps       []Measured `json:"set_ups"`
}

// Measured has the figures of a set-up. Trips has those of all parts.
type Measured struct {
	Name string `json:"name"`
	Figures
}

// MeasureAll measures parts of several set-ups, one after another. say is called before each. After an error, the
// result has what was measured before.
func MeasureAll(ctx context.Context, setUps []SetUp, parts []Part, setup Setup, say func(format string, args ...any)) (Result, error) {
	r := Result{CPUs: len(cpus()), BridgeFilter: HasBridgeFilter(), Setup: setup}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		r.KernelRelease = unix.ByteSliceToString(u.Release[:])
	}
	begun, done := time.Now(), 0
	for _, s := range setUps {
		r.SetUps = append(r.SetUps, Measured{Name: s.Name})
		m := &r.SetUps[len(r.SetUps)-1]
		for _, p := range parts {
			left := ""
			if all := len(setUps) * len(parts); done > 0 {
				left = fmt.Sprintf(" (%d of %d, %v so far)", done+1, all, time.Since(begun).Round(time.Second))
			}
			say("%s: %s%s", s.Name, p, left)
			f, err := Measure(ctx, s, p, setup)
			if err != nil {
				return r, err
			}
			m.Streams, m.Trips = append(m.Streams, f.Streams...), append(m.Trips, f.Trips...)
			done++
		}
	}
	return r, nil
}

// WriteTable writes the figures and the findings.
func (r Result) WriteTable(w io.Writer) error {
	var streams, trips, pairs [][]any
	for _, m := range r.SetUps {
		for _, s := range m.Streams {
			streams = append(streams, []any{m.Name, s.Way, number(s.MBPerSecond), number(s.MachineCPU), number(s.ThreadsCPU)})
		}
		for _, t := range m.Trips {
			if !t.OneCPU && t.Pairs == 1 && !t.Busy {
				cpus := "may halt"
				if t.Awake {
					cpus = "kept awake"
				}
				trips = append(trips, []any{m.Name, t.Protocol, cpus, number(t.MeanUS), number(t.P50US), number(t.P99US), number(t.RunDelayUS), number(t.CPUUS), t.Lost})
				continue
			}
			where, load := "one CPU", ""
			if !t.OneCPU {
				where = "all CPUs"
			}
			if t.Busy {
				load = fmt.Sprintf("%.0f/min", t.OperationsPerMinute)
			}
			pairs = append(pairs, []any{m.Name, where, t.Pairs, load, number(t.MeanUS), number(t.P50US), number(t.P99US), number(t.RunDelayUS), number(t.CPUUS), number(t.Switches)})
		}
	}
	if err := writeRows(w, fmt.Sprintf("Streams of one pair, writes of %d bytes", r.Setup.WriteBytes),
		"SET-UP\tWAY\tMB/s\tMACHINE CPU s/GB\tTHREADS CPU s/GB", streams); err != nil {
		return err
	}
	if err := writeRows(w, fmt.Sprintf("Round trips of one pair, %d bytes and %d bytes; us", r.Setup.RequestBytes, r.Setup.AnswerBytes),
		"SET-UP\tPROTOCOL\tCPUS\tMEAN\tP50\tP99\tRUN QUEUE\tCPU\tLOST", trips); err != nil {
		return err
	}
	if err := writeRows(w, "Round trips of several pairs of containers, TCP; us",
		"SET-UP\tON\tPAIRS\tOPERATIONS\tMEAN\tP50\tP99\tRUN QUEUE\tCPU\tSWITCHES", pairs); err != nil {
		return err
	}
	if !r.BridgeFilter {
		fmt.Fprintln(w, "This kernel has no br_netfilter: the bridge passes only packets for published ports to the rules.")
	}
	for _, f := range r.Findings() {
		fmt.Fprintln(w, f)
	}
	return nil
}

func writeRows(w io.Writer, title, head string, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w, title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	for _, r := range rows {
		for i, cell := range r {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, cell)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// number returns a figure with about three digits.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Findings returns what the figures show, in sentences. It says nothing about what was not measured.
func (r Result) Findings() (all []string) {
	steps := []struct{ from, to, what string }{
		{Host, Bridge, "The bridge"}, {Bridge, BridgeFilter, "Docker's rules"}, {BridgeFilter, BridgeNAT, "The translation of addresses"},
	}
	for _, s := range steps {
		from, to := r.onePair(s.from), r.onePair(s.to)
		for i := range from {
			if from[i] > 0 && to[i] > 0 { // both have a figure of this kind
				all = append(all, fmt.Sprintf("%s: %+.1f us (%+.0f %%) in the TCP round trip of one pair.", s.what, to[i]-from[i], 100*(to[i]/from[i]-1)))
				break
			}
		}
	}
	for _, m := range r.SetUps {
		if own, host := r.cpu(m.Name), r.cpu(Host); m.Name != Host && own > 0 && host > 0 {
			all = append(all, fmt.Sprintf("%s: %.2f times the CPU time of loopback for each byte that a client sends.", m.Name, own/host))
		}
	}
	for _, m := range r.SetUps {
		if g, ok := Grows(m.Trips); ok {
			all = append(all, fmt.Sprintf("%s: from %d to %d pairs on one CPU, the mean round trip changes from %s to %s us; the delay in the run queue changes by %s us, which is %.0f %% of this.",
				m.Name, g.From.Pairs, g.To.Pairs, number(g.From.MeanUS), number(g.To.MeanUS), number(g.To.RunDelayUS-g.From.RunDelayUS), 100*g.Queued))
		}
	}
	return all
}

// onePair returns the TCP round trips of one pair in microseconds, those that show most about the network first: the mean with both ends on
// one CPU, the median while no CPU halted, and the median while CPUs could halt. A figure is 0 if it was not measured. With
// several CPUs, a round trip depends more on which CPUs the ends are on, and on whether these halt, than on the network. So only
// figures of one kind can be compared.
func (r Result) onePair(setUp string) (us [3]float64) {
	for _, m := range r.SetUps {
		for _, t := range m.Trips {
			if m.Name != setUp || t.Protocol != TCP || t.Pairs != 1 || t.Busy {
				continue
			}
			kind, v := 2, t.P50US
			switch {
			case t.OneCPU:
				kind, v = 0, t.MeanUS
			case t.Awake:
				kind = 1
			}
			if us[kind] == 0 { // pairs that were not bound to a CPU have another median
				us[kind] = v
			}
		}
	}
	return us
}

// cpu returns the CPU time that the ends of a connection need to transmit a GB, in seconds; 0 if it was not measured.
func (r Result) cpu(setUp string) float64 {
	for _, m := range r.SetUps {
		for _, s := range m.Streams {
			if m.Name == setUp && s.Way == Transmit {
				return s.ThreadsCPU
			}
		}
	}
	return 0
}

// Growth is how the mean round trip changes from the least to the largest number of pairs on one CPU.
type Growth struct {
	From, To Trip
	// Queued is the part of the change that is delay in the run queue. It may be a little above 1, because the delays
	// of the two ends of a connection may overlap.
	Queued float64
}

// Grows returns the growth of round trips without operations. ok is false if there are not two numbers of pairs, or
// if the mean does not grow.
func Grows(trips []Trip) (g Growth, ok bool) {
	for _, t := range trips {
		if !t.OneCPU || t.Busy || t.Protocol != TCP {
			continue
		}
		if g.From.Pairs == 0 || t.Pairs < g.From.Pairs {
			g.From = t
		}
		if t.Pairs > g.To.Pairs {
			g.To = t
		}
	}
	grown := g.To.MeanUS - g.From.MeanUS
	if g.From.Pairs == g.To.Pairs || !(grown > 0) {
		return Growth{}, false
	}
	g.Queued = (g.To.RunDelayUS - g.From.RunDelayUS) / grown
	return g, true
}
