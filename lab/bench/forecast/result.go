package forecast

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"penstock/core/character"
	"penstock/lab/experiment"
)

// Forecast is one answer of the broker. Its times are in seconds since the application's submission.
type Forecast struct {
	Of        string  `json:"of"`       // what Mark is a part of: ofProgress or ofWork
	Mark      float64 `json:"mark"`     // the part of the progress or work at which the broker was to be asked
	Progress  float64 `json:"progress"` // that the broker had then
	Done      float64 `json:"done"`     // part of the work, as far as the broker knew
	Runs      int     `json:"runs"`     // earlier runs of the same kind from which the forecast comes
	AtS       float64 `json:"at_s"`
	ExpectedS float64 `json:"expected_s"`
	LowS      float64 `json:"low_s"`
	HighS     float64 `json:"high_s"`
	Share     float64 `json:"share"` // that the forecast assumes
	DiskPart  float64 `json:"disk_part"`
	DiskError float64 `json:"disk_error"`
	Reason    string  `json:"reason,omitempty"` // why there is no forecast

	expected, low, high time.Time
}

// What a mark is a part of.
const (
	ofProgress = "progress" // as YARN or the driver reports it
	ofWork     = "work"     // as known from earlier runs; the broker knows it only with history
)

// known reports whether the broker has given a forecast.
func (f Forecast) known() bool { return f.Reason == "" }

// missed returns the forecast's error in per cent of the application's whole run time.
func (f Forecast) missed(runtime float64) float64 {
	return 100 * math.Abs(f.ExpectedS-runtime) / runtime
}

// missedRest returns the same in per cent of the time that remained. known is false if nothing remained.
func (f Forecast) missedRest(runtime float64) (percent float64, known bool) {
	if runtime <= f.AtS {
		return 0, false
	}
	return 100 * math.Abs(f.ExpectedS-runtime) / (runtime - f.AtS), true
}

// held reports whether the interval holds the end.
func (f Forecast) held(runtime float64) bool { return f.LowS <= runtime && runtime <= f.HighS }

// Change is a change of the weights from 1:1.
type Change struct {
	AtS         float64 `json:"at_s"`
	Progress    float64 `json:"progress"`
	Application int     `json:"application"` // its new weight
	Background  int     `json:"background"`
}

// Point is the progress at one time.
type Point struct {
	AtS      float64 `json:"at_s"`
	Progress float64 `json:"progress"`
}

// Turn is one finished turn of one row, as the journal keeps it. Times are in seconds since the application's submission.
type Turn struct {
	Row       string             `json:"row"`
	Run       int                `json:"run"`
	RuntimeS  float64            `json:"runtime_s"` // by the ResourceManager
	Change    *Change            `json:"change,omitempty"`
	Forecasts []Forecast         `json:"forecasts,omitempty"`
	Curve     []Point            `json:"curve,omitempty"` // each progress that the broker had, and when it had it first
	Note      string             `json:"note,omitempty"`  // why there is no forecast
	Profile   *character.Profile `json:"profile,omitempty"`
}

func round(x float64) float64 { return math.Round(1000*x) / 1000 }

// Key returns the turn's key.
func (t Turn) Key() experiment.RowTurn { return experiment.RowTurn{Row: t.Row, Run: t.Run} }

// String returns the turn's figures on a line.
func (t Turn) String() string {
	text := []string{fmt.Sprintf("%.1f s", t.RuntimeS)}
	if c := t.Change; c != nil {
		text = append(text, fmt.Sprintf("weights %d:%d after %.0f s", c.Application, c.Background, c.AtS))
	}
	for _, f := range t.Forecasts {
		if !f.known() {
			text = append(text, fmt.Sprintf("at %.0f %%: %s", 100*f.Progress, f.Reason))
			continue
		}
		text = append(text, fmt.Sprintf("at %.0f %% (%.0f %% of the work by %d runs) after %.0f s: %.0f s (%.0f to %.0f), error %.1f %%",
			100*f.Progress, 100*f.Done, f.Runs, f.AtS, f.ExpectedS, f.LowS, f.HighS, f.missed(t.RuntimeS)))
	}
	if t.Note != "" {
		text = append(text, t.Note)
	}
	if p := t.Profile; p != nil {
		text = append(text, fmt.Sprintf("%s: CPU %.0f %%, memory %.0f %%, disk %.0f %%, %d phases", character.Class(p.Intensive),
			100*p.Mean[character.CPU], 100*p.Mean[character.Memory], 100*p.Mean[character.Disk], len(p.Phases)))
	}
	return strings.Join(text, "; ")
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

// WriteTable writes a line for each forecast, and one for each profile.
func (r Result) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "disk %.1f MB/s; history: earlier runs that the broker knew; errors of forecasts in %% of the whole run time, and of the time that remained\n", float64(r.Setup.DiskRate)/megabyte)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ROW\tRUN\tWEIGHTS\tRUN TIME, s\tHISTORY\tMARK\tPROGRESS\tWORK\tASKED AT, s\tFORECAST, s\tINTERVAL, s\tHOLDS\tERROR\tOF THE REST")
	for _, row := range rows {
		for _, turn := range r.Of(row.Name) {
			if row.Profile {
				continue
			}
			weights := "1:1"
			if c := turn.Change; c != nil {
				weights = fmt.Sprintf("1:1, %d:%d", c.Application, c.Background)
			}
			line := fmt.Sprintf("%s\t%d\t%s\t%.1f", row.Name, turn.Run, weights, turn.RuntimeS)
			if len(turn.Forecasts) == 0 {
				fmt.Fprintf(t, "%s\t%s\n", line, turn.Note)
			}
			for _, f := range turn.Forecasts {
				line := fmt.Sprintf("%s\t%d\t%.0f %% of %s\t%.0f %%\t%.0f %%\t%.1f", line, f.Runs, 100*f.Mark, f.Of, 100*f.Progress, 100*f.Done, f.AtS)
				if !f.known() {
					fmt.Fprintf(t, "%s\t%s\n", line, f.Reason)
					continue
				}
				rest := ""
				if percent, known := f.missedRest(turn.RuntimeS); known {
					rest = fmt.Sprintf("%.1f %%", percent)
				}
				fmt.Fprintf(t, "%s\t%.1f\t%.1f to %.1f\t%v\t%.1f %%\t%s\n", line, f.ExpectedS, f.LowS, f.HighS,
					f.held(turn.RuntimeS), f.missed(turn.RuntimeS), rest)
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(t, "\nAPPLICATION\tRUN\tRUN TIME, s\tCPU\tMEMORY\tDISK\tNETWORK\tPHASES\tCLASS\tTABLE II")
	profiles := 0
	for _, job := range Profiled {
		for _, turn := range r.Of(profilePrefix + job) {
			p := turn.Profile
			if p == nil {
				continue
			}
			profiles++
			fmt.Fprintf(t, "%s\t%d\t%.1f", titles[job], turn.Run, turn.RuntimeS)
			for resource := range character.Resources {
				fmt.Fprintf(t, "\t%.0f %%", 100*p.Mean[resource])
			}
			fmt.Fprintf(t, "\t%d\t%s\t%s\n", len(p.Phases), character.Class(p.Intensive), character.Class(paperClass[job]))
		}
	}
	if profiles == 0 {
		return nil
	}
	return t.Flush()
}
