package monitor

// Activity is what runs beside WordCount.
type Activity string

// The background activities of the paper's Table 2.
const (
	None       Activity = ""
	FioReader  Activity = "fio-reader"  // reads a large local file through the page cache
	FioWriter  Activity = "fio-writer"  // overwrites it through the page cache
	HDFSReader Activity = "hdfs-reader" // a client of HDFS
	HDFSWriter Activity = "hdfs-writer"
)

// Activities are the background activities, in the paper's order.
var Activities = []Activity{FioReader, FioWriter, HDFSReader, HDFSWriter}

// local reports whether the activity uses a local file instead of HDFS.
func (a Activity) local() bool { return a == FioReader || a == FioWriter }

// Control is how the background is held.
type Control string

// The kinds of control.
const (
	Native   Control = "native"   // nothing is held; the daemon observes
	Paper    Control = "paper"    // blkio of cgroup v1 for local files, HTB for connections
	Penstock Control = "penstock" // the gate for local files, the arbiter for HDFS
)

// Row is a row of the paper's tables, or a part of Experiment 1: what runs, under which control.
type Row struct {
	Name      string   `json:"name"`
	WordCount bool     `json:"wordcount"`
	TeraSort  bool     `json:"terasort"`
	Beside    Activity `json:"beside,omitempty"`
	Control   Control  `json:"control"`
	Preferred string   `json:"preferred,omitempty"` // name of the job with the larger weight
}

// Names of jobs.
const (
	wordCount = "wordcount"
	teraSort  = "terasort"
)

// Names of rows without a background activity.
const (
	rowAlone          = "alone"
	rowAloneEnforced  = "alone-penstock"
	rowTeraSort       = "terasort-alone"
	rowTogether       = "together"
	rowPrefer         = "wordcount-preferred"
	rowPreferTeraSort = "terasort-preferred"
)

// rowOf returns the name of the row of an activity.
func rowOf(a Activity, c Control) string {
	switch {
	case c == Native:
		return string(a)
	case c == Penstock:
		return string(a) + "-penstock"
	case a.local():
		return string(a) + "-cgroup"
	}
	return string(a) + "-tc"
}

// Rows returns all rows, in the order in which they are measured.
func Rows() []Row {
	all := []Row{
		{Name: rowAlone, WordCount: true, Control: Native},
		{Name: rowAloneEnforced, WordCount: true, Control: Penstock},
		{Name: rowTeraSort, TeraSort: true, Control: Native},
		{Name: rowTogether, WordCount: true, TeraSort: true, Control: Native},
		{Name: rowPrefer, WordCount: true, TeraSort: true, Control: Penstock, Preferred: wordCount},
		{Name: rowPreferTeraSort, WordCount: true, TeraSort: true, Control: Penstock, Preferred: teraSort},
	}
	for _, a := range Activities {
		for _, c := range []Control{Native, Paper, Penstock} {
			all = append(all, Row{Name: rowOf(a, c), WordCount: true, Beside: a, Control: c})
		}
	}
	return all
}

// RowNames returns the names of all rows, in the same order.
func RowNames() (names []string) {
	for _, r := range Rows() {
		names = append(names, r.Name)
	}
	return names
}

// rowNamed returns the row with a name that RowNames has returned, or calibration.
func rowNamed(name string) Row {
	for _, r := range Rows() {
		if r.Name == name {
			return r
		}
	}
	return calibration
}
