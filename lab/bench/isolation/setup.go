package isolation

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"penstock/core/sfq"
	"penstock/lab/contest"
	"penstock/lab/experiment"
	"penstock/lab/hadoop"
)

const mib = contest.MiB

// Setup is everything that may change a figure. A set-up is the same in every phase, and the
// journal contains it. The phases and the number of their runs are not part of a set-up.
type Setup struct {
	Against   string             `json:"against"` // one of Aggressors
	Protected ProtectedSetup     `json:"protected"`
	Aggressor AggressorSetup     `json:"aggressor"`
	Disk      contest.Disk       `json:"disk"` // each DataNode has another disk, too, for the floor's aggressor
	Kernel    contest.Kernel     `json:"kernel"`
	Penstock  PenstockSetup      `json:"penstock"`
	Hadoop    HadoopSetup        `json:"hadoop"`
	Machine   experiment.Machine `json:"machine"`
	Notes     []string           `json:"notes,omitempty"` // restrictions of this machine

	// Intermediate puts intermediate data (spills, shuffle) on the contested disks, too, and
	// governs it. Otherwise intermediate data is on the run folder's disk.
	Intermediate bool `json:"intermediate,omitempty"`
	// Both lets the aggressor run to its own end on the limited disks, for the relative
	// performance of both sides.
	Both bool `json:"both,omitempty"`
}

// ProtectedSetup describes the protected job, one of Protecteds. WordCount has one wave of long
// maps, as in the paper. Fields that a job does not use are 0. The JSON leaves out unused fields
// that older journals do not have, so older journals stay valid.
type ProtectedSetup struct {
	InputBytes int64 `json:"input_bytes"`
	Files      int   `json:"files"`      // one map each, spread over the disks; for TPC-H, parts of each large table
	WordBytes  int   `json:"word_bytes"` // mean; with longer words the job reads faster on the same CPU
	Vocabulary int   `json:"vocabulary"` // distinct words
	Reduces    int   `json:"reduces"`
	SortMB     int   `json:"sort_mb"` // mapreduce.task.io.sort.mb: only with a small buffer does a map read while it sorts
	CPU        int   `json:"cpu"`     // its tasks run on this CPU only

	Job        string  `json:"job,omitempty"`                // "" is WordCount
	Slots      int     `json:"slots,omitempty"`              // maps that run at a time; 0: all
	Scale      float64 `json:"scale,omitempty"`              // TPC-H's scale factor: about 0.3 GB as Parquet each
	Partitions int     `json:"shuffle_partitions,omitempty"` // of Spark SQL
}

func (p ProtectedSetup) kind() string { return cmp.Or(p.Job, wordCount) }

// AggressorSetup describes the other job, one of Aggressors. It needs enough bytes to outlast the
// protected job in every phase: a run in which the aggressor ends first is refused.
type AggressorSetup struct {
	Bytes int64 `json:"bytes"`
	Slots int   `json:"slots"` // tasks that run at a time; TeraGen has as many maps
	// Applications is the number of jobs of the aggressor, each with an equal part of the
	// bytes and the slots; 0 is 1. Only TeraGen can be divided.
	Applications int `json:"applications,omitempty"`
	Files        int `json:"files"` // of the input, one map each; TeraGen has none
	Reduces      int `json:"reduces"`
	CPU          int `json:"cpu"`

	WordBytes  int `json:"word_bytes,omitempty"` // WordCount's, as in ProtectedSetup
	Vocabulary int `json:"vocabulary,omitempty"`
	SortMB     int `json:"sort_mb,omitempty"`
}

func (a AggressorSetup) applications() int { return max(1, a.Applications) }

// Divide divides the aggressor into n applications with the same number of tasks: one task each,
// if the tasks cannot be divided equally.
func (a *AggressorSetup) Divide(n int) {
	a.Applications = n
	if n > 0 && a.Slots%n != 0 {
		a.Slots = n
	}
}

// each returns the set-up of one of the aggressor's applications.
func (a AggressorSetup) each() AggressorSetup {
	n := a.applications()
	a.Bytes, a.Slots, a.Applications = a.Bytes/int64(n), a.Slots/n, 1
	return a
}

// PenstockSetup is the daemon's configuration in the governed phases. The agent
// is in the DataNodes in every phase; without a daemon its gates are open, so no
// phase differs from another by a DataNode restart.
type PenstockSetup struct {
	AgentInAllPhases bool  `json:"agent_in_all_phases"`
	QuantumBytes     int64 `json:"quantum_bytes"`
	Ahead            int   `json:"ahead"`                   // quanta staged ahead of a reader
	BacklogBytes     int64 `json:"backlog_bytes,omitempty"` // bound on an application's backlog on a disk; 0: the daemon's default
	// DirtyBackgroundBytes and DirtyExpireCentisecs are the kernel's parameters in governed phases.
	// If DirtyBackgroundBytes is 0, both are as in the other phases.
	DirtyBackgroundBytes int64 `json:"dirty_background_bytes,omitempty"`
	DirtyExpireCentisecs int64 `json:"dirty_expire_centisecs,omitempty"`
	// DirtySharePercent is the part of the kernel's dirty limits that is guaranteed to each
	// contested disk (min_ratio). If it is 0, a disk's part is in proportion to its recent writes,
	// as natively.
	DirtySharePercent int `json:"dirty_share_percent,omitempty"`

	ProtectedWeight int             `json:"protected_weight"`
	AggressorWeight int             `json:"aggressor_weight"`
	ClientsWeight   int             `json:"clients_weight"` // of both jobs' submitters and application masters, which read and write the jobs' files
	DepthMin        float64         `json:"depth_min"`
	DepthMax        float64         `json:"depth_max"`
	DepthStart      float64         `json:"depth_start"`
	DepthGain       float64         `json:"depth_gain"`
	ReferenceRead   contest.Latency `json:"reference_read"`
	ReferenceWrite  contest.Latency `json:"reference_write"`
	// ProfileSHA256 is the digest of the device's profile. The profile's costs and reference
	// latencies replace the two latencies above. "" means no profile.
	ProfileSHA256 string `json:"profile_sha256,omitempty"`
}

// HadoopSetup describes the cluster that runs the jobs.
type HadoopSetup struct {
	Version     string `json:"version"`
	Replication int    `json:"replication"`
	BlockBytes  int64  `json:"block_bytes"`
}

// SetWeights reads the weights of the protected job and the aggressor, as "32:1". The clients of
// both jobs get the protected job's weight.
func (s *Setup) SetWeights(text string) error {
	left, right, _ := strings.Cut(text, ":")
	protected, err := strconv.Atoi(left)
	aggressor, err2 := strconv.Atoi(right)
	if err != nil || err2 != nil || min(protected, aggressor) < 1 || max(protected, aggressor) > sfq.MaxWeight {
		return fmt.Errorf("--weights %q: give the weights of the protected job and of the aggressor as 32:1, each from 1 to %d", text, sfq.MaxWeight)
	}
	s.Penstock.ProtectedWeight, s.Penstock.AggressorWeight, s.Penstock.ClientsWeight = protected, aggressor, protected
	return nil
}

// Validate returns an error that names the field to change if the set-up cannot run.
func (s Setup) Validate() error {
	switch {
	case !slices.Contains(Aggressors, s.Against):
		return fmt.Errorf("--against %q: choose one of %s", s.Against, strings.Join(Aggressors, ", "))
	case !slices.Contains(Protecteds, s.Protected.kind()):
		return fmt.Errorf("--protected %q: choose one of %s", s.Protected.Job, strings.Join(Protecteds, ", "))
	case s.protected().query() != "" && (s.Protected.Scale <= 0 || s.Protected.Partitions < 1 || !s.Intermediate):
		return fmt.Errorf("%s needs a scale (%g) above 0, shuffle partitions (%d) and intermediate data on the contested disks",
			s.Protected.Job, s.Protected.Scale, s.Protected.Partitions)
	case s.Protected.InputBytes < mib && s.protected().query() == "" || s.Aggressor.Bytes < mib:
		return fmt.Errorf("input of %d and %d bytes: both jobs need at least 1 MiB", s.Protected.InputBytes, s.Aggressor.Bytes)
	case s.Protected.Files < 1 || s.Aggressor.Slots < 1 || s.Aggressor.Files < 1 || s.Aggressor.Reduces < 1 || s.Protected.Reduces < 1:
		return fmt.Errorf("files, slots and reduces must be at least 1")
	case s.Aggressor.applications() > 1 && s.Against != "teragen":
		return fmt.Errorf("%d applications of %s: only teragen can be divided", s.Aggressor.Applications, s.Against)
	case s.Aggressor.each().Slots < 1 || s.Aggressor.Slots%s.Aggressor.applications() != 0:
		return fmt.Errorf("%d applications with %d tasks between them: each needs the same number, and at least one",
			s.Aggressor.Applications, s.Aggressor.Slots)
	case s.Disk.Validate() != nil:
		return s.Disk.Validate()
	case s.Kernel.DirtyBackgroundBytes <= 0 || s.Kernel.DirtyBytes <= s.Kernel.DirtyBackgroundBytes:
		return fmt.Errorf("dirty_bytes %d must be above dirty_background_bytes %d, both above 0",
			s.Kernel.DirtyBytes, s.Kernel.DirtyBackgroundBytes)
	case s.Penstock.DirtyBackgroundBytes < 0 || s.Penstock.DirtyBackgroundBytes >= s.Kernel.DirtyBytes:
		return fmt.Errorf("dirty_background_bytes %d under Penstock must be below dirty_bytes %d", s.Penstock.DirtyBackgroundBytes, s.Kernel.DirtyBytes)
	case s.Penstock.DirtySharePercent < 0 || s.Penstock.DirtySharePercent*s.Disk.DataNodes > 90:
		return fmt.Errorf("dirty_share_percent %d for %d disks: the sum over all disks must be 0 to 90", s.Penstock.DirtySharePercent, s.Disk.DataNodes)
	}
	return hadoop.CheckVersion(s.Hadoop.Version)
}

// Hash identifies the setup: equal setups, and only those, have equal hashes.
func (s Setup) Hash() string {
	b, err := json.Marshal(s) // struct fields come in declaration order
	if err != nil {
		panic("isolation: setup does not marshal: " + err.Error()) // no field can fail
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}
