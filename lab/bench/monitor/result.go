package monitor

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
)

// Job has a job's figures. Bytes are those of its input and output on the disk.
type Job struct {
	RuntimeS  float64 `json:"runtime_s"`
	ReadMBps  float64 `json:"read_mb_s"`
	WriteMBps float64 `json:"write_mb_s"`
	// BlockDelayS is the sum of the times for which the threads of the executor's container have waited
	// for block I/O, as the monitor reports it.
	BlockDelayS float64   `json:"block_delay_s"`
	Reads       []float64 `json:"reads_mb_s"` // by second
}

// Background has the figures of a background activity while WordCount ran.
type Background struct {
	ReadMBps  float64 `json:"read_mb_s"`
	WriteMBps float64 `json:"write_mb_s"`
}

// rate returns the read rate of a reader, and the write rate of a writer.
func (b Background) rate(a Activity) float64 {
	if a == FioReader || a == HDFSReader {
		return b.ReadMBps
	}
	return b.WriteMBps
}

// Turn is one finished turn of one row, as the journal keeps it.
type Turn struct {
	Row        string      `json:"row"`
	Run        int         `json:"run"`
	Disk       Disk        `json:"disk"` // zero: without a limit
	WordCount  *Job        `json:"wordcount,omitempty"`
	TeraSort   *Job        `json:"terasort,omitempty"`
	Background *Background `json:"background,omitempty"`
	// DataNodeBlockDelayS is the sum of the times for which the DataNode's threads have waited for block
	// I/O. AtMarksS is the sum of the times for which they have waited at marks. Both are for all clients.
	DataNodeBlockDelayS float64 `json:"datanode_block_delay_s"`
	AtMarksS            float64 `json:"at_marks_s"`
	// Implausible is set if the kernel had counted more waits than are possible. The monitor has removed
	// the excess, but the remaining figure may still be too large.
	Implausible bool `json:"implausible"`
}

// Key returns the turn's key.
func (t Turn) Key() experiment.RowTurn { return experiment.RowTurn{Row: t.Row, Run: t.Run} }

// waitsS returns the sum of all waits: those of the job's threads and of the DataNode's threads for block I/O,
// as the kernel counts them, and those of the DataNode's threads at marks, where readers wait under Penstock.
func (t Turn) waitsS(j Job) float64 { return j.BlockDelayS + t.DataNodeBlockDelayS + t.AtMarksS }

// String returns the turn's figures on a line.
func (t Turn) String() string {
	var text []string
	for _, j := range []struct {
		name string
		*Job
	}{{"WordCount", t.WordCount}, {"TeraSort", t.TeraSort}} {
		if j.Job != nil {
			text = append(text, fmt.Sprintf("%s %.1f s, read %.1f MB/s, wrote %.1f, block delay %.2f s", j.name, j.RuntimeS, j.ReadMBps, j.WriteMBps, j.BlockDelayS))
		}
	}
	if b := t.Background; b != nil {
		text = append(text, fmt.Sprintf("background read %.2f MB/s, wrote %.2f", b.ReadMBps, b.WriteMBps))
	}
	return strings.Join(append(text, fmt.Sprintf("DataNode: block delay %.1f s, at marks %.1f s", t.DataNodeBlockDelayS, t.AtMarksS)), "; ")
}

// Result is the benchmark's result, in the form of --json.
type Result struct {
	experiment.TurnTable[Setup, Turn]
}

// WriteJSON writes the result.
func (r Result) WriteJSON(w io.Writer) error {
	r.Claims = r.claims()
	return experiment.WriteJSON(w, r)
}

// ratios returns the ratios of a figure in a row to the figure in another row, of the same run.
func (r Result) ratios(row, base string, figure func(Turn) (float64, bool)) []float64 {
	return r.Pairs(row, base, func(turn, base Turn) (float64, bool) {
		v, known := figure(turn)
		w, baseKnown := figure(base)
		return v / w, known && baseKnown && w > 0
	})
}

// jobFigure returns a function for Values. The function returns a figure of a job.
func jobFigure(name string, of func(Job) float64) func(Turn) (float64, bool) {
	return func(t Turn) (float64, bool) {
		j := t.WordCount
		if name == teraSort {
			j = t.TeraSort
		}
		if j == nil {
			return 0, false
		}
		return of(*j), true
	}
}

func runtime(j Job) float64 { return j.RuntimeS }

// backgroundRate returns a function for Values. The function returns the rate of an activity in MB/s.
func backgroundRate(a Activity) func(Turn) (float64, bool) {
	return func(t Turn) (float64, bool) {
		if t.Background == nil {
			return 0, false
		}
		return t.Background.rate(a), true
	}
}

// WriteTable writes medians over the runs, and for run times the least and the greatest value in
// brackets.
func (r Result) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	median := func(row, format string, figure func(Turn) (float64, bool)) string {
		values := r.Values(row, figure)
		if len(values) == 0 {
			return ""
		}
		return fmt.Sprintf(format, claims.Of("", "", values...).Value)
	}
	if d, err := r.Setup.disk(r.Of(calibration.Name)); err == nil {
		fmt.Fprintf(w, "disk %.1f MB/s, limit of a controlled background %.2f MB/s; WordCount %d MiB, TeraSort %d MiB\n",
			float64(d.Rate)/megabyte, float64(d.Limit)/megabyte, r.Setup.WordCount.InputBytes/mib, r.Setup.TeraSort.InputBytes/mib)
	}
	fmt.Fprintln(t, "ROW\tJOB\tRUN TIME, s\tOF ALONE\tREAD, MB/s\tWRITTEN, MB/s\tblkio_delay, s\tDATANODE'S, s\tAT MARKS, s\tALL WAITS, s\tBACKGROUND, MB/s\tOF NATIVE")
	for _, row := range append([]Row{calibration}, Rows()...) {
		for _, j := range []struct{ name, title, base string }{{wordCount, "WordCount", rowAlone}, {teraSort, "TeraSort", rowTeraSort}} {
			times := r.Values(row.Name, jobFigure(j.name, runtime))
			if len(times) == 0 {
				continue
			}
			c := claims.Of("", "", times...)
			ratio := ""
			if of := r.ratios(row.Name, j.base, jobFigure(j.name, runtime)); len(of) > 0 {
				ratio = fmt.Sprintf("%.2f", claims.Of("", "", of...).Value)
			}
			lost := ""
			if of := r.ratios(row.Name, rowOf(row.Beside, Native), backgroundRate(row.Beside)); len(of) > 0 {
				lost = fmt.Sprintf("%.2f", claims.Of("", "", of...).Value)
			}
			fmt.Fprintf(t, "%s\t%s\t%.1f (%.1f to %.1f)\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.Name, j.title, c.Value, c.Low, c.High, ratio,
				median(row.Name, "%.1f", jobFigure(j.name, func(j Job) float64 { return j.ReadMBps })),
				median(row.Name, "%.1f", jobFigure(j.name, func(j Job) float64 { return j.WriteMBps })),
				median(row.Name, "%.2f", jobFigure(j.name, func(j Job) float64 { return j.BlockDelayS })),
				median(row.Name, "%.1f", func(t Turn) (float64, bool) { return t.DataNodeBlockDelayS, true }),
				median(row.Name, "%.1f", func(t Turn) (float64, bool) { return t.AtMarksS, true }),
				median(row.Name, "%.1f", func(t Turn) (float64, bool) {
					return jobFigure(j.name, t.waitsS)(t)
				}),
				median(row.Name, "%.2f", backgroundRate(row.Beside)), lost)
		}
	}
	return t.Flush()
}
