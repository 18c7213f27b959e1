package isolation

import (
	"context"
	"fmt"
	"strings"

	"penstock/lab/contest"
	"penstock/lab/hadoop"
	"penstock/lab/spark"
	"penstock/lab/tpch"
)

// Jobs of the two sides. The TPC-H queries run as Spark SQL on YARN (IBIS, section 7.4), the
// others on MapReduce.
const (
	wordCount    = string(hadoop.WordCount)
	teraGen      = string(hadoop.TeraGen)
	teraSort     = string(hadoop.TeraSort)
	teraValidate = string(hadoop.TeraValidate)
	tpchPrefix   = "tpch-"
	tpchQ9       = tpchPrefix + "q9"
	tpchQ21      = tpchPrefix + "q21"
)

var (
	// Protecteds are the jobs that can be protected.
	Protecteds = []string{wordCount, teraSort, tpchQ9, tpchQ21}
	// Aggressors are the three jobs of IBIS, Figure 3, and WordCount.
	Aggressors = []string{teraGen, teraSort, teraValidate, wordCount}
)

// DefaultAggressor is the aggressor if the command line names none. docs/design/contention.md
// compares the three aggressors of IBIS.
const DefaultAggressor = "teragen"

var titles = map[string]string{wordCount: "WordCount", teraGen: "TeraGen", teraSort: "TeraSort", teraValidate: "TeraValidate",
	tpchQ9: "TPC-H Q9", tpchQ21: "TPC-H Q21"}

// side describes the job of one side: the protected job, or one application of the aggressor.
type side struct {
	ProtectedSetup
	kind, queue string
}

func (s Setup) protected() side {
	return side{s.Protected, s.Protected.kind(), hadoop.QueueProtected}
}

// aggressor describes one of the aggressor's applications.
func (s Setup) aggressor() side {
	a := s.Aggressor.each()
	return side{ProtectedSetup{InputBytes: a.Bytes, Files: a.Files, Slots: a.Slots, Reduces: a.Reduces, CPU: a.CPU,
		WordBytes: a.WordBytes, Vocabulary: a.Vocabulary, SortMB: a.SortMB}, s.Against, hadoop.QueueAggressor}
}

func (s side) title() string { return titles[s.kind] }

// query returns the name of the TPC-H query; "" for a MapReduce job.
func (s side) query() string {
	if q, ok := strings.CutPrefix(s.kind, tpchPrefix); ok {
		return q
	}
	return ""
}

// A Spark executor takes as much of a queue's capacity as three tasks, and Spark's application
// master takes as much as two tasks.
const (
	executors     = 2
	executorTasks = 3
	driverTasks   = 2
)

// tasks returns the number of tasks for which the side's queue has room in addition to an
// application master.
func (s side) tasks() int {
	if s.query() != "" {
		return driverTasks + executors*executorTasks - 1
	}
	return max(s.Slots, 1)
}

// size returns the job's size as text for a reader.
func (s side) size() string {
	if s.query() != "" {
		return fmt.Sprintf("scale factor %g", s.Scale)
	}
	return fmt.Sprintf("%d MiB", s.InputBytes/mib)
}

// work describes a side's MapReduce job.
func (s side) work() contest.Work {
	return contest.Work{Kind: hadoop.Kind(s.kind), InputBytes: s.InputBytes, Files: s.Files, WordBytes: s.WordBytes, Vocabulary: s.Vocabulary,
		Reduces: s.Reduces, Maps: s.Slots, SortMB: s.SortMB, CPUs: fmt.Sprint(s.CPU), Queue: s.queue}
}

// prepareInput writes the side's input into a folder of HDFS, unless the input is already there.
func (m *Machine) prepareInput(ctx context.Context, s side, dir string) (err error) {
	if s.query() == "" {
		if !m.jobs.Prepared(s.work(), dir) {
			m.request.say("writing the input of %s, %s", s.title(), s.size())
		}
		return m.jobs.Prepare(ctx, s.work(), dir)
	}
	if m.answer.of == s {
		return nil
	}
	if err := m.Hadoop.FS().Remove(ctx, dir); err != nil {
		return err
	}
	m.request.say("writing the input of %s, %s", s.title(), s.size())
	m.answer.of = s
	m.answer.sha256, err = m.prepareQuery(ctx, s, dir)
	return err
}

// prepareQuery writes TPC-H's tables and runs the query once, alone and on disks without a
// limit. Later runs must give the same answer.
func (m *Machine) prepareQuery(ctx context.Context, s side, dir string) (answer string, err error) {
	generator, err := tpch.Fetch(ctx, m.request.CacheDir)
	if err != nil {
		return "", err
	}
	if err := tpch.Load(ctx, m.Hadoop.FS(), generator, m.Dir, dir, s.Scale, s.Files); err != nil {
		return "", err
	}
	if err := m.startSpark(ctx); err != nil {
		return "", err
	}
	m.request.say("running %s once, for the expected answer", s.title())
	q, err := m.submitQuery(ctx, s, dir, func(q spark.Query) error { answer = q.SHA256; return nil })
	if err != nil {
		return "", err
	}
	if _, _, err := q.Wait(ctx); err != nil {
		return "", err
	}
	err = q.Check(ctx)
	return answer, err
}

// submit starts a MapReduce job and returns when YARN has given the job its id.
func (m *Machine) submit(ctx context.Context, s side, input, output string, p Phase) (*contest.Job, error) {
	how := contest.Submission{Input: input, Output: output, Cgroup: m.groups.of(s.queue), Settings: map[string]string{}}
	if m.setup().Intermediate && s.Slots > 0 {
		how.Settings["mapreduce.job.running.map.limit"] = fmt.Sprint(s.Slots)
	}
	if m.setup().Intermediate && p.Elsewhere && s.queue == hadoop.QueueAggressor {
		how.User = userElsewhere
	}
	return m.jobs.Submit(ctx, s.work(), how)
}

// directions reports whether the job mainly writes to HDFS, mainly reads from it, or does both.
func (s side) directions() (writes, reads bool) {
	return s.kind == teraGen || s.kind == teraSort, s.kind != teraGen
}

// measured returns the name of the job that defines a phase's window.
func (s Setup) measured(p Phase) string {
	if p.Unprotected {
		return s.aggressor().title()
	}
	return s.protected().title()
}
