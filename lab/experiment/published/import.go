package published

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"penstock/lab/experiment/claims"
)

// Measurement holds the fields for publication from the JSON that a bench has written with --json.
type Measurement struct {
	Claims []claims.Claim `json:"claims"`
	Build  string         `json:"build"`  // of penstock, as git describes it; "" with benches that do not record it
	Builds []string       `json:"builds"` // the same, from benches that record it for each run
}

// ReadMeasurement reads a file that a bench has written with --json.
func ReadMeasurement(file string) (m Measurement, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%s is not a bench's --json: %w", file, err)
	}
	if len(m.Claims) == 0 {
		return m, fmt.Errorf("%s has no claims: write it with a bench's --json", file)
	}
	for i, c := range m.Claims {
		if slices.ContainsFunc(m.Claims[:i], func(other claims.Claim) bool { return other.Name == c.Name }) {
			return m, fmt.Errorf("%s has two claims %q", file, c.Name)
		}
	}
	return m, nil
}

var described = regexp.MustCompile(`^(?:.*-g)?([0-9a-f]{7,40})$`)

// Commit returns the commit of the measured build. It returns an error if the measurement names no
// build or several, or was made with uncommitted changes.
func (m Measurement) Commit() (string, error) {
	builds := m.Builds
	if m.Build != "" {
		builds = append(builds, m.Build)
	}
	if len(builds) != 1 {
		return "", fmt.Errorf("the measurement names %d builds (%s): name its commit with --commit", len(builds), strings.Join(builds, ", "))
	}
	found := described.FindStringSubmatch(builds[0])
	if found == nil {
		return "", fmt.Errorf("the measured build %q is not a commit: name its commit with --commit", builds[0])
	}
	return found[1], nil
}

// Choices holds the decisions of Import's caller.
type Choices struct {
	Commit, Date string
	Add          []string // names of claims to publish that the result does not have yet
	// MarkEarlier marks the figures that the measurement lacks as figures of an earlier build. If
	// it is false, such figures are an error of Import when the commit changes.
	MarkEarlier bool
}

const earlierBuild = "earlier build"

// Import replaces figures of the result by the measurement's claims of the same name, and keeps the
// other figures. It never replaces a figure of an earlier build. A claim that Choices.Add names is
// added, and takes over the identifier and the chart's row of a figure of an earlier build with the
// same name. Import returns one line about each claim and about each kept figure.
func (r *Result) Import(m Measurement, c Choices) (done []string, err error) {
	say := func(format string, args ...any) { done = append(done, fmt.Sprintf(format, args...)) }
	current := func(name string) func(Figure) bool {
		return func(f Figure) bool { return f.Build == "" && f.Name == name }
	}
	for _, name := range c.Add {
		if !slices.ContainsFunc(m.Claims, func(c claims.Claim) bool { return c.Name == name }) {
			return nil, fmt.Errorf("the measurement has no claim %q", name)
		}
	}
	var replaced int
	var unknown []string
	for _, claim := range m.Claims {
		i := slices.IndexFunc(r.Claims, current(claim.Name))
		switch {
		case i >= 0:
			say("replaced: %s: %s instead of %s", claim.Name, number(claim.Value), number(r.Claims[i].Value))
			r.Claims[i].Claim = claim
			replaced++
		case slices.Contains(c.Add, claim.Name):
			added := Figure{Claim: claim}
			for j := range r.Claims {
				if old := &r.Claims[j]; old.Name == claim.Name {
					added.ID, added.Chart, old.ID, old.Chart = old.ID, old.Chart, "", ""
				}
			}
			r.Claims = append(r.Claims, added)
			say("added: %s: %s", claim.Name, number(claim.Value))
			replaced++
		default:
			unknown = append(unknown, claim.Name)
			say("not published: %s", claim.Name)
		}
	}
	if replaced == 0 {
		return nil, fmt.Errorf("none of the measured claims is published; --add NAME adds one of:\n  %s", strings.Join(unknown, "\n  "))
	}
	var left []string
	for i := range r.Claims {
		f := &r.Claims[i]
		measured := slices.ContainsFunc(m.Claims, func(c claims.Claim) bool { return f.Build == "" && c.Name == f.Name })
		switch {
		case measured:
		case f.Build != "" || c.Commit == r.Commit:
			say("kept: %s", f.Name)
		case c.MarkEarlier:
			f.Build = earlierBuild
			say("kept, and marked as of an %s: %s", earlierBuild, f.Name)
		default:
			left = append(left, f.Name)
		}
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("the measurement, of commit %s, lacks figures of commit %s; --mark-earlier keeps them as of an earlier build:\n  %s",
			c.Commit, r.Commit, strings.Join(left, "\n  "))
	}
	r.Commit, r.Date = c.Commit, c.Date
	return done, r.validate()
}

// Write writes the result to its file.
func (r Result) Write(file string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
