// Package doctor checks whether Penstock works on a node, and reports what to repair.
//
// Problem: Penstock fails open. With a missing agent, a socket that refuses the DataNode, a missing
// right or a forgotten kill switch, HDFS runs as usual. But nothing is governed, and nobody notices
// until the shares are wrong. Choice: gathering and judging are separate. Gather reads the daemon's
// status, the DataNode's web address, /proc and /sys, and changes nothing. Each check is a function
// of these facts, so a test can describe every broken node. A check reports a finding, its meaning
// and a remedy. If the facts of a check are missing and another check has reported the reason, the
// check reports nothing.
//
// A failure prevents Penstock from governing, or lets I/O bypass it. A warning is for a
// disadvantage, or for a state that somebody may have wanted (the kill switch).
package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Version of the report's JSON form.
const Version = 1

// Verdict is the verdict of one check.
type Verdict string

// The verdicts.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn"
	Fail Verdict = "fail"
)

// Result is a check's result for one object, such as a device.
type Result struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`
	Meaning string  `json:"meaning,omitempty"` // empty when all is well
	Remedy  string  `json:"remedy,omitempty"`
}

// Report contains the results of all checks.
type Report struct {
	Version  int       `json:"version"`
	Time     time.Time `json:"time"`
	Address  string    `json:"address"`
	DataNode string    `json:"datanode"`
	Results  []Result  `json:"results"`
	Warnings int       `json:"warnings"`
	Failures int       `json:"failures"`
}

// check is a named function of the facts.
type check struct {
	name  string
	judge func(*Facts) []Result
}

// checks are in the order in which an operator would look for a fault.
var checks = []check{
	{"daemon", checkDaemon},
	{"heartbeat", checkHeartbeat},
	{"kill-switch", checkKillSwitch},
	{"mode", checkMode},
	{"weights", checkWeights},
	{"datanode", checkDataNode},
	{"agent", checkAgent},
	{"socket", checkSocket},
	{"loopback", checkLoopback},
	{"directories", checkDirectories},
	{"rights", checkRights},
	{"identity", checkIdentity},
	{"services", checkServices},
	{"short-circuit", checkShortCircuit},
	{"readahead", checkReadahead},
	{"installed", checkInstalled},
	{"executors", checkExecutors},
	{"nodemanager", checkNodeManager},
	{"shuffle", checkShuffle},
	{"worker", checkWorker},
	{"foreign", checkForeign},
	{"waits", checkWaits},
	{"orchestrators", checkOrchestrators},
	{"kerberos", checkKerberos},
	{"control", checkControl},
	{"promises", checkPromises},
	{"latency", checkLatency},
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

// Names returns the names of all checks.
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

// Text returns the report as text for people.
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
