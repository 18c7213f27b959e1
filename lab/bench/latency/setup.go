package latency

import (
	"errors"
	"fmt"
	"time"

	"penstock/lab/disk"
	"penstock/lab/experiment"
	"penstock/lab/hadoop"
)

const (
	mib      = 1 << 20
	megabyte = 1_000_000
)

// Setup is everything that may change a figure.
type Setup struct {
	Machine     experiment.Machine `json:"machine"`
	Rate        int64              `json:"rate"` // of the disks, bytes per second
	Quantum     int64              `json:"quantum_bytes"`
	Backlog     int64              `json:"backlog_bytes"`
	Dirty       int64              `json:"dirty_bytes"` // the kernel's limit; it begins to write at half of that
	ReadBytes   int                `json:"read_bytes"`
	FileBytes   int64              `json:"file_bytes"`   // of the file that is read at random places
	CachedBytes int64              `json:"cached_bytes"` // of the file that is read from the page cache
	EveryMS     int                `json:"every_ms"`     // beside others, from one read to the next
	AloneMS     int                `json:"alone_ms"`     // alone
	Segments    int                `json:"segments"`     // alone: of each kind, natively and under Penstock in turn
	SegmentS    float64            `json:"segment_s"`
	WarmingS    float64            `json:"warming_s"` // reads from the page cache after a start of the DataNode
	SettlingS   float64            `json:"settling_s"`
	IdleS       float64            `json:"idle_s"`   // measurement of the others without reads
	ActiveS     float64            `json:"active_s"` // measurement with reads
	Writers     int                `json:"writers"`
	Maps        int                `json:"teragen_maps"`
	Weight      int                `json:"weight"` // of the reads; others have 1
	GoalMS      int                `json:"goal_ms"`
	HBaseRows   int                `json:"hbase_rows"`   // of 1,000 bytes
	HBaseReads  int                `json:"hbase_reads"`  // measured at a time, from the disk
	HBaseWrites int                `json:"hbase_writes"` // measured at a time
	Hadoop      string             `json:"hadoop"`
}

// DefaultSetup returns the set-up for a machine with two CPUs. A run of all rows takes about nine minutes.
func DefaultSetup() Setup {
	return Setup{Machine: experiment.ThisMachine(), Rate: 20 * megabyte, Quantum: mib, Backlog: 12 * mib, Dirty: 100 * mib,
		ReadBytes: 16 << 10, FileBytes: 512 * mib, CachedBytes: 32 * mib, EveryMS: 100, AloneMS: 20, Segments: 3, SegmentS: 8, WarmingS: 5,
		SettlingS: 10, IdleS: 20, ActiveS: 45, Writers: 2, Maps: 4, Weight: 32, GoalMS: 50,
		HBaseRows: 250_000, HBaseReads: 300, HBaseWrites: 300, Hadoop: hadoop.DefaultVersion}
}

func (s Setup) model() disk.Model { return disk.HDD(s.Rate) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Validate returns an error for a set-up that cannot be measured.
func (s Setup) Validate() error {
	if s.Machine.CPUs < 2 {
		return errors.New("this machine has fewer than two CPUs: clients and DataNodes would wait for each other at the CPU; use a machine with two or more")
	}
	if s.GoalMS < 10 || s.GoalMS > 10_000 {
		return fmt.Errorf("--goal %d: use 10 to 10000 milliseconds", s.GoalMS)
	}
	return hadoop.CheckVersion(s.Hadoop)
}

// Row is one kind of measurement.
type Row struct {
	Name    string
	Alone   bool
	TeraGen bool // beside TeraGen; false: beside writers
	Native  bool
	Goal    bool // with a latency goal
	HBase   bool // HBase's operations; false: reads of an HDFS client
}

const (
	rowAlone      = "alone"
	writersNative = "writers-native"
	writersWeight = "writers-weight"
	writersGoal   = "writers-goal"
	teraGenNative = "teragen-native"
	teraGenGoal   = "teragen-goal"
	hbaseAlone    = "hbase-alone"
	hbaseNative   = "hbase-teragen-native"
	hbaseWeight   = "hbase-teragen-weight"
	hbaseGoal     = "hbase-teragen-goal"
)

var rows = []Row{
	{Name: rowAlone, Alone: true},
	{Name: writersNative, Native: true},
	{Name: writersWeight},
	{Name: writersGoal, Goal: true},
	{Name: teraGenNative, TeraGen: true, Native: true},
	{Name: teraGenGoal, TeraGen: true, Goal: true},
	{Name: hbaseAlone, Alone: true, HBase: true, Goal: true},
	{Name: hbaseNative, TeraGen: true, Native: true, HBase: true},
	{Name: hbaseWeight, TeraGen: true, HBase: true},
	{Name: hbaseGoal, TeraGen: true, Goal: true, HBase: true},
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
