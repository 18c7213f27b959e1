package guarantees

import (
	"errors"
	"time"

	"penstock/lab/disk"
	"penstock/lab/experiment"
	"penstock/lab/hadoop"
)

const (
	mib      = 1 << 20
	megabyte = 1_000_000
)

// Setup is everything that may change a figure. Rates are in bytes per second.
type Setup struct {
	Machine    experiment.Machine `json:"machine"`
	HDDRate    int64              `json:"hdd_rate"`
	SSDRate    int64              `json:"ssd_rate"` // of reads
	Quantum    int64              `json:"quantum_bytes"`
	Aggressors int                `json:"aggressors"` // beside the application with the guaranteed rate
	Reserve    float64            `json:"reserve"`    // part of a disk
	Total      int64              `json:"total_reserve"`
	Limit      int64              `json:"limit"`       // on one disk
	TotalLimit int64              `json:"total_limit"` // on two nodes
	SettlingS  float64            `json:"settling_s"`  // before each measurement
	WindowS    float64            `json:"window_s"`    // of a measurement
	PhaseS     float64            `json:"phase_s"`     // between two moves of the tasks
	MovingS    float64            `json:"moving_s"`    // after a move, counted apart
	Hadoop     string             `json:"hadoop"`
}

// DefaultSetup returns the set-up for a machine with two CPUs. A run of all rows takes about twelve minutes.
func DefaultSetup() Setup {
	return Setup{Machine: experiment.ThisMachine(), HDDRate: disk.HDDRate, SSDRate: disk.SSDRate, Quantum: 512 << 10, Aggressors: 16,
		Reserve: 0.4, Total: 9 * megabyte, Limit: 4 * megabyte, TotalLimit: 8 * megabyte,
		SettlingS: 10, WindowS: 60, PhaseS: 45, MovingS: 5, Hadoop: hadoop.DefaultVersion}
}

func (s Setup) model(row Row) disk.Model {
	if row.SSD {
		return disk.SSD(s.SSDRate)
	}
	return disk.HDD(s.HDDRate)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Validate returns an error for a set-up that cannot be measured.
func (s Setup) Validate() error {
	if s.Machine.CPUs < 2 {
		return errors.New("this machine has fewer than two CPUs: clients and DataNodes would wait for each other at the CPU; use a machine with two or more")
	}
	return hadoop.CheckVersion(s.Hadoop)
}

// Row is one kind of measurement.
type Row struct {
	Name    string
	One     bool // on one disk
	SSD     bool
	Native  bool // without Penstock
	InBytes bool // the guaranteed rate is in bytes, and not a part of the disk's time
}

const (
	hddNative  = "hdd-native"
	ssdNative  = "ssd-native"
	hddTime    = "hdd-time"
	hddBytes   = "hdd-bytes"
	ssdTime    = "ssd-time"
	rowCluster = "cluster"
	rowLimit   = "limit"
	rowHalved  = "halved"
)

// rows are all rows, in their order.
var rows = []Row{
	{Name: hddNative, One: true, Native: true},
	{Name: hddTime, One: true},
	{Name: hddBytes, One: true, InBytes: true},
	{Name: ssdNative, One: true, SSD: true, Native: true},
	{Name: ssdTime, One: true, SSD: true},
	{Name: rowCluster},
	{Name: rowLimit},
	{Name: rowHalved},
}

// Rows returns the names of all rows.
func Rows() (names []string) {
	for _, r := range rows {
		names = append(names, r.Name)
	}
	return names
}

func rowOf(name string) Row {
	for _, r := range rows {
		if r.Name == name {
			return r
		}
	}
	return Row{}
}
