// Package published turns the committed results into docs/results.md and verifies the figures
// that README.md quotes.
//
// A figure that is typed into a document drifts from what was measured. So each published figure is
// in one file below results/, with its set-up and commit. The document is generated, and README.md
// marks each figure with the identifier of its claim:
//
//	WordCount takes 1.83<!-- isolation.native --> times as long
//
// Import copies the figures into these files from the JSON that a bench has written with --json.
// Nobody types them.
package published

import (
	"bytes"
	"encoding/json"
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
	Order   int      `json:"order"` // position among the results, ascending
	Title   string   `json:"title"`
	Shows   string   `json:"shows"`   // what was measured, and why
	Setup   string   `json:"setup"`   // machine, kernel, Java, Hadoop, disks
	Command string   `json:"command"` // that repeats the measurement
	Commit  string   `json:"commit"`  // of the build; may be "" if all figures are of earlier builds
	Date    string   `json:"date"`    // of the measurement, 2006-01-02
	More    string   `json:"more"`    // a document with details, relative to docs/
	Lost    []string `json:"lost"`    // where Penstock is worse, or what is open, a sentence each
	Claims  []Figure `json:"claims"`

	name string // of its file, without .json
}

// Name returns the name of the result's file, without .json.
func (r Result) Name() string { return r.name }

// Figure is a claim with further properties for the documents.
type Figure struct {
	claims.Claim
	ID    string `json:"id,omitempty"`    // unique; README.md refers to the figure by it
	Build string `json:"build,omitempty"` // set if the figure is of another build than the result's commit
	Chart string `json:"chart,omitempty"` // name of its row in the result's chart; "": not in the chart
}

// interval returns the figure's interval as text, or "" if the figure has no interval.
func (f Figure) interval() string {
	if f.Low == f.High && (f.Runs == 1 || f.Build != "") {
		return ""
	}
	return number(f.Low) + " to " + number(f.High)
}

// verdict returns "yes" if the goal is met and "no" if it is missed, with a remark if the verdict
// is open. Without a goal it returns "".
func (f Figure) verdict() string {
	switch {
	case f.Goal == nil:
		return ""
	case f.Open():
		return answer(*f.Met) + ", interval crosses the goal"
	}
	return answer(*f.Met)
}

func answer(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// Read reads the result in a file.
func Read(file string) (r Result, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return r, fmt.Errorf("%s: %w", file, err)
	}
	if err := r.validate(); err != nil {
		return r, fmt.Errorf("%s: %w", file, err)
	}
	r.name = strings.TrimSuffix(filepath.Base(file), ".json")
	return r, nil
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
		r, err := Read(file)
		if err == nil && (len(r.Claims) == 0 || r.Date == "") {
			err = fmt.Errorf("%s: there are no claims, or no date: penstock-lab results import fills both in", file)
		}
		if err != nil {
			return nil, err
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

var (
	commitForm = regexp.MustCompile(`^[0-9a-f]{7,40}$`)
	dayForm    = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)
)

func (r Result) validate() error {
	for name, text := range map[string]string{"title": r.Title, "shows": r.Shows, "setup": r.Setup, "command": r.Command} {
		if text == "" {
			return fmt.Errorf("%s is missing", name)
		}
	}
	for _, f := range r.Claims {
		switch {
		case f.Name == "" || f.Unit == "":
			return fmt.Errorf("claim %q has no name or unit", f.Name)
		case f.Build == "" && f.Runs < 1:
			return fmt.Errorf("claim %q has no runs", f.Name)
		case f.Build == "" && !commitForm.MatchString(r.Commit):
			return fmt.Errorf("claim %q has no commit: %q is not a commit", f.Name, r.Commit)
		case f.Build == "" && !dayForm.MatchString(r.Date):
			return fmt.Errorf("claim %q has no date of its measurement: %q is not a date", f.Name, r.Date)
		case (f.Build == "" || f.Low != 0 || f.High != 0) && !(f.Low <= f.Value && f.Value <= f.High):
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

This page is generated from the files in [results/](../results) by ` + "`penstock-lab results`" + `. To change this page, change those files.

The disks are modelled: a FUSE file behind a loop device answers at the pace of a disk and logs each
request. HDFS, YARN, MapReduce, Spark, the file system and the kernel are real. Ratios carry over to
other machines; seconds do not. An interval reaches from the lowest to the highest value of all runs,
unless its section describes another interval.

`)
	var met, missed, metOpen, missedOpen int
	for _, r := range all {
		for _, f := range r.Claims {
			of, open := &missed, &missedOpen
			if f.Goal == nil {
				continue
			}
			if *f.Met {
				of, open = &met, &metOpen
			}
			*of++
			if f.Open() {
				*open++
			}
		}
	}
	fmt.Fprintf(&b, "Of %[2]d figures with a goal, %[1]d meet it with their median or mean, and %[4]d miss it. Where the interval crosses the goal,\n"+
		"the result is open: %[3]d of the %[1]d, and %[5]d of the %[4]d.\n", met, met+missed, metOpen, missed, missedOpen)
	for _, r := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", r.Title, r.Shows)
		b.WriteString("| figure | value | interval | runs | goal | met | source |\n|---|---|---|---|---|---|---|\n")
		for _, f := range r.Claims {
			name := f.Name
			if f.Build != "" {
				name += " (" + f.Build + ")"
			}
			runs, goal := "", ""
			if f.Runs > 0 {
				runs = strconv.Itoa(f.Runs)
			}
			if f.Goal != nil && f.HigherIsBetter {
				goal = "at least " + number(*f.Goal)
			} else if f.Goal != nil {
				goal = "at most " + number(*f.Goal)
			}
			fmt.Fprintf(&b, "| %s | %s%s | %s | %s | %s | %s | %s |\n", name, number(f.Value), unit(f.Unit), f.interval(), runs, goal, f.verdict(), f.Source)
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

// number returns v with four significant digits or, from 1000 on, rounded to a whole number.
func number(v float64) string {
	if math.Abs(v) < 1000 {
		v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	} else {
		v = math.Round(v)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

func unit(u string) string {
	if u == "ratio" {
		return ""
	}
	return " " + u
}

// quoted matches a figure in a document, together with the mark that follows the figure. The text
// may show the figure rounded, or a ratio in per cent.
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
