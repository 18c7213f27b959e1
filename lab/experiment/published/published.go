// Package published turns the committed results into docs/results.md and verifies the figures
// that README.md quotes.
//
// A figure that is typed into a document drifts from what was measured. So each published figure is
// in one file below results/, with its set-up and commit. The document is generated, and README.md
// marks each figure with the identifier of its claim:
//
//	WordCount takes 1.83<!-- isolation.native --> times as long
package published

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"penstock/lab/experiment/claims"
)

// Result is the form of a file below results/.
type Result struct {
	Order   int      `json:"order"` // among the results, ascending
	Title   string   `json:"title"`
	Shows   string   `json:"shows"`   // what was measured, and why
	Setup   string   `json:"setup"`   // machine, kernel, Java, Hadoop, disks
	Command string   `json:"command"` // that repeats it
	Commit  string   `json:"commit"`  // of the build, if it is known
	Date    string   `json:"date"`    // of the measurement
	Lost    []string `json:"lost"`    // where Penstock is worse, a sentence each
	More    string   `json:"more"`    // a document with details, relative to docs/
	Claims  []Figure `json:"claims"`
}

// Figure is a claim with what the documents need of it.
type Figure struct {
	claims.Claim
	ID    string `json:"id,omitempty"`    // by which README.md names it, unique
	Build string `json:"build,omitempty"` // if it is of another build than the result's commit
}

// Load reads all results, in their order.
func Load(dir string) ([]Result, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no results in %s", dir)
	}
	var all []Result
	seen := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		var r Result
		if err := decoder.Decode(&r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if err := r.validate(); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, f := range r.Claims {
			if other := seen[f.ID]; f.ID != "" && other != "" {
				return nil, fmt.Errorf("%s: the identifier %q is in %s as well", file, f.ID, other)
			}
			seen[f.ID] = file
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b Result) int { return a.Order - b.Order })
	return all, nil
}

func (r Result) validate() error {
	for name, text := range map[string]string{"title": r.Title, "shows": r.Shows, "setup": r.Setup, "command": r.Command, "date": r.Date} {
		if text == "" {
			return fmt.Errorf("%s is missing", name)
		}
	}
	if len(r.Claims) == 0 {
		return errors.New("there are no claims")
	}
	for _, f := range r.Claims {
		switch {
		case f.Name == "" || f.Unit == "":
			return fmt.Errorf("claim %q has no name or unit", f.Name)
		case f.Low > f.Value || f.High < f.Value && f.High != 0:
			return fmt.Errorf("claim %q: %v is not between %v and %v", f.Name, f.Value, f.Low, f.High)
		case (f.Goal == nil) != (f.Met == nil):
			return fmt.Errorf("claim %q has a goal or a verdict, but not both", f.Name)
		case f.Goal != nil && *f.Met != (f.HigherIsBetter && f.Value >= *f.Goal || !f.HigherIsBetter && f.Value <= *f.Goal):
			return fmt.Errorf("claim %q: the verdict contradicts value and goal", f.Name)
		}
	}
	return nil
}

// Markdown renders the results.
func Markdown(all []Result) string {
	var b strings.Builder
	b.WriteString(`# Results

This page is generated from the files in [results/](../results) by ` + "`penstock-lab results`" + `; change those.

The disks are modelled: a FUSE file behind a loop device answers at the pace of a disk and logs each
request. HDFS, YARN, MapReduce, Spark, the file system and the kernel are real. Ratios carry over to
other machines; seconds do not. An interval is the least and the greatest run, or a confidence
interval where the figure says so.

`)
	met, goals := 0, 0
	for _, r := range all {
		for _, f := range r.Claims {
			if f.Goal != nil {
				goals++
				if *f.Met {
					met++
				}
			}
		}
	}
	fmt.Fprintf(&b, "%d of %d figures with a goal meet it.\n", met, goals)
	for _, r := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", r.Title, r.Shows)
		b.WriteString("| figure | value | interval | runs | goal | met | source |\n|---|---|---|---|---|---|---|\n")
		for _, f := range r.Claims {
			name := f.Name
			if f.Build != "" {
				name += " (" + f.Build + ")"
			}
			interval, runs, goal, verdict := "", "", "", ""
			if f.Low != 0 || f.High != 0 {
				interval = fmt.Sprintf("%s to %s", number(f.Low), number(f.High))
			}
			if f.Runs > 0 {
				runs = strconv.Itoa(f.Runs)
			}
			if f.Goal != nil {
				goal, verdict = "at most "+number(*f.Goal), "no"
				if f.HigherIsBetter {
					goal = "at least " + number(*f.Goal)
				}
				if *f.Met {
					verdict = "yes"
				}
			}
			fmt.Fprintf(&b, "| %s | %s%s | %s | %s | %s | %s | %s |\n", name, number(f.Value), unit(f.Unit), interval, runs, goal, verdict, f.Source)
		}
		if len(r.Lost) > 0 {
			b.WriteString("\nWhere Penstock loses, or what is open:\n\n")
			for _, l := range r.Lost {
				fmt.Fprintf(&b, "- %s\n", l)
			}
		}
		fmt.Fprintf(&b, "\nSet-up: %s\n\nRepeat: `%s`", r.Setup, r.Command)
		if r.More != "" {
			fmt.Fprintf(&b, " ([details](%s))", r.More)
		}
		b.WriteString("\n\nMeasured " + r.Date)
		if r.Commit != "" {
			b.WriteString(", commit " + r.Commit)
		}
		b.WriteString(".\n")
	}
	return b.String()
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func unit(u string) string {
	if u == "ratio" {
		return ""
	}
	return " " + u
}

// quoted is a figure in a document, and the mark behind it. The text may show the figure rounded,
// or a ratio in per cent.
var quoted = regexp.MustCompile(`([0-9][0-9,]*(?:\.[0-9]+)?)( %)?<!-- ([a-z0-9.-]+) -->`)

// Check returns the figures that a document quotes wrongly.
func Check(document string, all []Result) (wrong []string) {
	values := map[string]Figure{}
	for _, r := range all {
		for _, f := range r.Claims {
			values[f.ID] = f
		}
	}
	marks := quoted.FindAllStringSubmatch(document, -1)
	if n := strings.Count(document, "<!-- "); n != len(marks) {
		wrong = append(wrong, fmt.Sprintf("%d marks, of which %d follow a figure", n, len(marks)))
	}
	for _, m := range marks {
		text, percent, id := strings.ReplaceAll(m[1], ",", ""), m[2] != "", m[3]
		f, known := values[id]
		if !known {
			wrong = append(wrong, fmt.Sprintf("%s: no claim has this identifier", id))
			continue
		}
		said, err := strconv.ParseFloat(text, 64)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", id, err))
			continue
		}
		value := f.Value
		if percent && f.Unit == "ratio" {
			value *= 100
		}
		_, decimals, _ := strings.Cut(text, ".")
		if math.Abs(said-value) > 0.5*math.Pow10(-len(decimals))+1e-9 {
			wrong = append(wrong, fmt.Sprintf("%s: the document says %s, the result %v", id, m[1]+m[2], f.Value))
		}
	}
	return wrong
}
