package forecast

import (
	"errors"
	"fmt"
	"slices"

	"penstock/lab/experiment"
	"penstock/lab/hadoop"
)

const (
	mib      = 1 << 20
	megabyte = 1_000_000 // disks' rates are in decimal megabytes
)

// Bounds of a request.
const (
	MinRate = 2 * megabyte
	MaxRate = 1000 * megabyte
)

// Setup is everything that may change a figure.
type Setup struct {
	Machine   experiment.Machine `json:"machine"`
	DiskRate  int64              `json:"disk_rate"` // bytes per second
	Scheduler string             `json:"scheduler"` // I/O scheduler of the disk
	Quantum   int64              `json:"quantum_bytes"`
	// TextBytes is the input of WordCount, Sort and Bayes, in TextFiles files of one block each.
	TextBytes int64 `json:"text_bytes"`
	TextFiles int   `json:"text_files"`
	WordBytes int   `json:"word_bytes"`
	// SortFiles is how many of these files Sort sorts.
	SortFiles int `json:"sort_files"`
	// RowBytes is TeraSort's input, in RowFiles files of one block each.
	RowBytes int64 `json:"row_bytes"`
	RowFiles int   `json:"row_files"`
	Maps     int   `json:"maps"` // that run at a time
	Reduces  int   `json:"reduces"`
	// Query is the TPC-H query, and Scale its scale factor.
	Query      string  `json:"query"`
	Scale      float64 `json:"scale"`
	TableParts int     `json:"table_parts"`
	Partitions int     `json:"shuffle_partitions"`
	// KMeansRows is the number of points that K-means divides.
	KMeansRows int `json:"kmeans_rows"`
	// BackgroundBytes is the size of the file that the background reads in each of its streams.
	BackgroundBytes   int64 `json:"background_bytes"`
	BackgroundStreams int   `json:"background_streams"`
	// Marks are the parts of the progress at which the broker is asked. ChangeAt is the part at which the
	// weights change, in rows with a change. Weight is then the weight of the preferred side; in every second
	// run that is the background. All other weights are 1.
	Marks    []float64 `json:"marks"`
	ChangeAt float64   `json:"change_at"`
	Weight   int       `json:"weight"`
	Hadoop   string    `json:"hadoop"`
}

// half is the mark whose forecasts have a goal.
const half = 0.5

// DefaultSetup returns the set-up for a machine with two CPUs, on which a run of a row takes one to two
// minutes.
func DefaultSetup() Setup {
	return Setup{
		Machine: experiment.ThisMachine(), DiskRate: 10 * megabyte, Scheduler: "mq-deadline", Quantum: mib,
		TextBytes: 288 * mib, TextFiles: 12, WordBytes: 12, SortFiles: 6, RowBytes: 96 * mib, RowFiles: 6, Maps: 2, Reduces: 2,
		Query: "q21", Scale: 0.7, TableParts: 4, Partitions: 8, KMeansRows: 3_000_000,
		BackgroundBytes: 2048 * mib, BackgroundStreams: 2,
		Marks: []float64{0.4, half, 0.6, 0.7}, ChangeAt: 1.0 / 3, Weight: 3,
		Hadoop: hadoop.DefaultVersion,
	}
}

// Validate returns an error for a set-up that cannot be measured.
func (s Setup) Validate() error {
	switch {
	case s.DiskRate < MinRate || s.DiskRate > MaxRate:
		return fmt.Errorf("--disk-rate: %d bytes per second: use %dM to %dM", s.DiskRate, MinRate/megabyte, MaxRate/megabyte)
	case !slices.Contains([]string{"bfq", "mq-deadline", "kyber", "none"}, s.Scheduler):
		return fmt.Errorf("--scheduler %q: use bfq, mq-deadline, kyber or none", s.Scheduler)
	case s.Machine.CPUs < 2:
		return errors.New("this machine has fewer than two CPUs: with one CPU, the jobs and the background would also wait for each other at the CPU; use a machine with two or more")
	}
	return hadoop.CheckVersion(s.Hadoop)
}

// weights returns the weights of the application and of the background after a change in a run, counted from 1.
func (s Setup) weights(run int) (application, background int) {
	if run%2 == 0 {
		return 1, s.Weight
	}
	return s.Weight, 1
}

// deviceSettings returns the section device of the daemon's settings. The bounds on dirty pages are about
// one and three seconds of the disk's rate, so that a job's end is not an end in the page cache.
func (s Setup) deviceSettings(profile string) string {
	return fmt.Sprintf("  profile: %q\n  quantum: %d\n  ahead: 4\n  backlog: %d\n  dirty: %d\n  depth: {start: 2, max: 8}\n",
		profile, s.Quantum, max(s.DiskRate, 2*s.Quantum), max(3*s.DiskRate, 4*s.Quantum))
}
