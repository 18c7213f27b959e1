package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"penstock/lab/sim"
)

// mostDeadlines bounds the rows about jobs with deadlines.
const mostDeadlines = 50

// deadlineRow is a job with a deadline, as text.
type deadlineRow struct {
	Job, Deadline string
	Ends          []string // by way, in the order of Report.Ways
	States, Rate  string
}

// Ways returns the ways in which the jobs were played, in order.
func (r Report) Ways() (ways []string) {
	for _, s := range r.Summaries {
		if n := len(ways); n == 0 || ways[n-1] != s.Way {
			ways = append(ways, s.Way)
		}
	}
	return ways
}

// Deadlines returns the first jobs with deadlines.
func (r Report) Deadlines() (rows []deadlineRow) {
	ways := r.Ways()
	for i := range r.Jobs {
		j := &r.Jobs[i]
		if j.Due == nil || len(rows) == mostDeadlines {
			continue
		}
		row := deadlineRow{Job: j.Name, Deadline: seconds(j.Due.After), States: strings.Join(j.Due.States(), ", then "), Rate: "none"}
		if rate := j.Due.Rate(); rate > 0 {
			row.Rate = fmt.Sprintf("%.0f MB/s", float64(rate)/1e6)
		}
		for _, way := range ways {
			row.Ends = append(row.Ends, end(j, way))
		}
		rows = append(rows, row)
	}
	return rows
}

// end returns when a job with a deadline ended in one way.
func end(j *sim.Job, way string) string {
	switch took := j.Took(way); {
	case took == 0:
		return "not ended"
	case j.InTime(way):
		return seconds(took)
	default:
		return seconds(took) + ", late"
	}
}

// writeDeadlines writes the table of jobs with deadlines, if there are some.
func (r Report) writeDeadlines(w io.Writer) error {
	rows := r.Deadlines()
	if len(rows) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\njob\tdeadline\tended %s\tlargest rate\tstates\n", strings.Join(r.Ways(), "\tended "))
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", row.Job, row.Deadline, strings.Join(row.Ends, "\t"), row.Rate, row.States)
	}
	return t.Flush()
}
