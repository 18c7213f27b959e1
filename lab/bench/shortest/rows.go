package shortest

import (
	"fmt"
	"slices"
	"strings"

	"penstock/core/shortest"
	"penstock/lab/bench/together"
	"penstock/lab/contest"
	"penstock/lab/hadoop"
)

// Workloads.
const (
	Generate = "teragen" // TeraGen 1:2:3
	Mix      = "mix"     // Sort, WordCount, TeraSort
)

// Workloads are all workloads.
var Workloads = []string{Generate, Mix}

// Setup is everything that may change a figure.
type Setup struct {
	Workload string `json:"workload"`
	together.Setup
}

// DefaultSetup returns the set-up of a workload on a kind of disk. The jobs together need the disks for
// about 80 s.
func DefaultSetup(workload, kind string) (Setup, error) {
	common, err := together.NewSetup(kind)
	if err != nil {
		return Setup{}, err
	}
	s := Setup{Workload: workload, Setup: common}
	const mib = contest.MiB
	switch workload {
	case Generate:
		for i, name := range []string{"small", "middle", "large"} {
			s.Jobs = append(s.Jobs, together.Job{Name: name, Kind: hadoop.TeraGen, Bytes: int64(i+1) * 288 * mib, Maps: 4})
		}
	case Mix:
		s.Intermediate = true
		s.Jobs = []together.Job{
			{Name: "sort", Kind: hadoop.Sort, Bytes: 96 * mib, Maps: 2, Reduces: 1, WordBytes: 12, SortMB: 32},
			{Name: "wordcount", Kind: hadoop.WordCount, Bytes: 384 * mib, Maps: 4, Reduces: 1, WordBytes: 16, SortMB: 16},
			{Name: "terasort", Kind: hadoop.TeraSort, Bytes: 320 * mib, Maps: 4, Reduces: 2, SortMB: 100},
		}
	default:
		return s, fmt.Errorf("--workload %q: choose one of %s", workload, strings.Join(Workloads, ", "))
	}
	return s, nil
}

// title returns the workload's name for a reader.
func (s Setup) title() string {
	if s.Workload == Mix {
		return "Sort, WordCount and TeraSort"
	}
	return "TeraGen 1:2:3"
}

// slices returns the paper's slices of the workload.
func (s Setup) slices() shortest.Slices {
	if s.Workload == Mix {
		return shortest.Slices{Percent: []int{90}, Floor: 1}
	}
	return shortest.Slices{Percent: []int{70, 20, 10}, Floor: 1}
}

// everything is for the first job.
var everything = shortest.Slices{Percent: []int{100}, Floor: 1}

const (
	nativePrefix   = "native-"
	equalRow       = "equal"
	shortestPrefix = "shortest-"
	sizedPrefix    = "sized-"
	capsPrefix     = "caps-"
)

// order is a row in which Penstock orders the jobs.
type order struct {
	row    string
	slices shortest.Slices
	sized  bool // the jobs state their sizes
}

// orders returns the rows in which Penstock orders the jobs.
func (s Setup) orders() []order {
	paper := s.slices()
	return []order{{shortestPrefix + text(paper), paper, false}, {sizedPrefix + text(paper), paper, true}, {shortestPrefix + text(everything), everything, false}}
}

// text returns slices as in the name of a row.
func text(s shortest.Slices) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(s.Percent), "[]"), " ", "-")
}

// Rows returns all rows, in the order in which they are measured.
func (s Setup) Rows() (rows []together.Row) {
	for _, kernel := range together.KernelSchedulers {
		rows = append(rows, together.Row{Name: nativePrefix + kernel, Way: together.Way{Kernel: kernel}})
	}
	rows = append(rows, together.Row{Name: equalRow, Way: together.Way{Governed: true}})
	for _, o := range s.orders() {
		list := strings.ReplaceAll(strings.Trim(fmt.Sprint(o.slices.Percent), "[]"), " ", ", ")
		rows = append(rows, together.Row{Name: o.row, Way: together.Way{Governed: true, Sized: o.sized,
			Policy: fmt.Sprintf("order: shortest, slices: [%s], floor: %d", list, o.slices.Floor)}})
	}
	return append(rows, together.Row{Name: capsPrefix + text(s.slices()), Way: together.Way{Caps: s.slices()}})
}

// natives returns the names of the native rows.
func natives() (names []string) {
	for _, kernel := range together.KernelSchedulers {
		names = append(names, nativePrefix+kernel)
	}
	return names
}

// rowNames returns the names of all rows, those of the jobs alone first.
func (s Setup) rowNames() []string {
	return slices.Concat(together.RowNames(together.Alone(s.Setup)), together.RowNames(s.Rows()))
}
