// Package doctor checks whether Penstock works on a node, and says what to mend.
//
// Problem: Penstock fails open. A missing agent, a socket that the DataNode may
// not connect to, a missing right, a kill switch that somebody forgot: each leaves
// HDFS running as ever and nothing governed, which nobody notices until the
// shares are wrong. Choice: gathering and judging are kept apart. Gather looks at
// the daemon's status, the DataNode's web address, /proc and /sys and changes
// nothing; each check is a function of what was found, so that every broken node
// can be written down as a test. A check says what it found, what that means and
// what to do; a check whose facts could not be had says nothing where another one
// has already said why.
//
// A failure is what keeps Penstock from governing, or lets I/O pass it by; a
// warning is what makes it worse than it could be, or what somebody may have
// wanted (the kill switch).
package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Version of the report's JSON form.
const Version = 1

// Verdict of one check.
type Verdict string

// The verdicts.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn"
	Fail Verdict = "fail"
)

// Result is what a check says of one thing.
type Result struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`
	Meaning string  `json:"meaning,omitempty"` // empty when all is well
	Remedy  string  `json:"remedy,omitempty"`
}

// Report is the whole of it.
type Report struct {
	Version  int       `json:"version"`
	Time     time.Time `json:"time"`
	Address  string    `json:"address"`
	DataNode string    `json:"datanode"`
	Results  []Result  `json:"results"`
	Warnings int       `json:"warnings"`
	Failures int       `json:"failures"`
}

// check is one function over the facts.
type check struct {
	name  string
	judge func(*Facts) []Result
}

// checks are in the order in which somebody would look.
var checks = []check{
	{"daemon", checkDaemon},
	{"heartbeat", checkHeartbeat},
	{"kill-switch", checkKillSwitch},
	{"mode", checkMode},
	{"weights", checkWeights},
	{"datanode", checkDataNode},
	{"agent", checkAgent},
	{"socket", checkSocket},
	{"directories", checkDirectories},
	{"rights", checkRights},
	{"identity", checkIdentity},
	{"short-circuit", checkShortCircuit},
	{"readahead", checkReadahead},
	{"installed", checkInstalled},
	{"nodemanager", checkNodeManager},
	{"shuffle", checkShuffle},
	{"foreign", checkForeign},
	{"devices", checkDevices},
	{"scheduler", checkScheduler},
	{"queue", checkQueue},
	{"profile", checkProfile},
	{"dirty-limits", checkDirtyLimits},
	{"kernel", checkKernel},
	{"java", checkJava},
	{"hadoop", checkHadoop},
	{"clock", checkClock},
}

// Names are the checks there are.
func Names() []string {
	names := make([]string, len(checks))
	for i, c := range checks {
		names[i] = c.name
	}
	return names
}

// Judge runs every check. A failure of an ignored check counts as a warning.
func Judge(f *Facts, ignore []string) *Report {
	r := &Report{Version: Version, Time: f.Time, Address: f.Address, DataNode: f.DataNode.URL, Results: []Result{}}
	for _, c := range checks {
		for _, result := range c.judge(f) {
			result.Check = c.name
			if result.Verdict == Fail && slices.Contains(ignore, c.name) {
				result.Verdict = Warn
			}
			switch result.Verdict {
			case Warn:
				r.Warnings++
			case Fail:
				r.Failures++
			}
			r.Results = append(r.Results, result)
		}
	}
	return r
}

// Text is the report for people.
func (r *Report) Text() string {
	var b strings.Builder
	for _, s := range r.Results {
		fmt.Fprintf(&b, "%-4s  %-13s  %s\n", s.Verdict, s.Check, s.Found)
		if s.Meaning != "" {
			fmt.Fprintf(&b, "%21smeans: %s\n", "", s.Meaning)
		}
		if s.Remedy != "" {
			fmt.Fprintf(&b, "%21sdo:    %s\n", "", s.Remedy)
		}
	}
	fmt.Fprintf(&b, "%d ok, %d to look at, %d to mend\n", len(r.Results)-r.Warnings-r.Failures, r.Warnings, r.Failures)
	return b.String()
}

func good(format string, args ...any) []Result {
	return []Result{{Verdict: OK, Found: fmt.Sprintf(format, args...)}}
}

func bad(v Verdict, found, meaning, remedy string) []Result {
	return []Result{{Verdict: v, Found: found, Meaning: meaning, Remedy: remedy}}
}
