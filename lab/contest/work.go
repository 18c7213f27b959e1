package contest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"penstock/lab/hadoop"
)

// Seed is the seed of all inputs; any other number would do.
const Seed = 20160531

// Work describes a MapReduce job. Fields that a kind of job does not use are 0.
type Work struct {
	Kind       hadoop.Kind
	InputBytes int64 // of TeraGen: of the output
	Files      int   // of the input: one map each, spread over the DataNodes
	WordBytes  int   // of text: mean length of a word
	Vocabulary int   // of text: distinct words
	Reduces    int
	Maps       int // of TeraGen
	SortMB     int // mapreduce.task.io.sort.mb; 0: the cluster's
	CPUs       string
	Queue      string
}

var titles = map[hadoop.Kind]string{hadoop.WordCount: "WordCount", hadoop.TeraGen: "TeraGen", hadoop.TeraSort: "TeraSort",
	hadoop.TeraValidate: "TeraValidate", hadoop.Sort: "Sort"}

// Title returns the job's name for a reader.
func (w Work) Title() string { return titles[w.Kind] }

func (w Work) rows() int64 { return w.InputBytes / hadoop.RowBytes }

// source is the input of a job, from which its output follows.
type source struct {
	of    Work
	words *hadoop.WordCounts
	rows  hadoop.Checksum128
}

// Jobs writes the inputs of MapReduce jobs, submits the jobs and checks their outputs. Its methods
// may be called from one goroutine only, except those of the jobs.
type Jobs struct {
	Hadoop *hadoop.Cluster

	sources map[string]source // by folder of HDFS
	outputs int               // so far
}

// NewJobs returns Jobs without any inputs.
func NewJobs(h *hadoop.Cluster) *Jobs { return &Jobs{Hadoop: h, sources: map[string]source{}} }

// Output returns the path of an output folder that no other job has, below the folder place.
func (js *Jobs) Output(place, name string) string {
	js.outputs++
	return fmt.Sprintf("%s/output/%s-%d", place, name, js.outputs)
}

// Prepared reports whether the input of w is in a folder. A job without input needs none.
func (js *Jobs) Prepared(w Work, dir string) bool {
	had, ok := js.sources[dir]
	return w.Kind == hadoop.TeraGen || ok && had.of == w
}

// Prepare writes the input of w into a folder of HDFS, unless it is already there.
func (js *Jobs) Prepare(ctx context.Context, w Work, dir string) (err error) {
	if js.Prepared(w, dir) {
		return nil
	}
	if _, ok := js.sources[dir]; ok {
		if err := js.Hadoop.FS().Remove(ctx, dir); err != nil {
			return err
		}
	}
	made := source{of: w}
	switch w.Kind {
	case hadoop.WordCount, hadoop.Sort:
		made.words, err = js.Hadoop.WriteText(ctx, dir, hadoop.Text{Seed: Seed, WordBytes: w.WordBytes,
			Vocabulary: w.Vocabulary, Files: w.Files, FileBytes: w.InputBytes / int64(w.Files)})
	default:
		made.rows, err = js.Hadoop.WriteRows(ctx, dir, hadoop.Rows{Seed: Seed,
			Rows: w.rows(), Files: w.Files, Sorted: w.Kind == hadoop.TeraValidate})
	}
	js.sources[dir] = made
	return err
}

// Submission has the properties of one submission of a job.
type Submission struct {
	Input, Output string // folders of HDFS
	Cgroup        string // of the containers; "": none
	User          string // "": the cluster's
	Settings      map[string]string
}

// Submit starts a job and returns when YARN has given the job its id.
func (js *Jobs) Submit(ctx context.Context, w Work, s Submission) (*Job, error) {
	spec := hadoop.Job{Kind: w.Kind, Output: s.Output, Rows: w.rows(), Maps: w.Maps, Reduces: w.Reduces,
		Queue: w.Queue, CPUs: w.CPUs, Cgroup: s.Cgroup, User: s.User, Settings: map[string]string{}}
	if w.Kind != hadoop.TeraGen {
		spec.Input = s.Input
	}
	if w.SortMB > 0 {
		spec.Settings["mapreduce.task.io.sort.mb"] = strconv.Itoa(w.SortMB)
	}
	for k, v := range s.Settings {
		spec.Settings[k] = v
	}
	return js.run(ctx, spec, func(ctx context.Context) error { return js.check(ctx, w, s.Input, s.Output) })
}

// run submits a MapReduce job and watches it to its end.
func (js *Jobs) run(ctx context.Context, spec hadoop.Job, check func(context.Context) error) (*Job, error) {
	app, err := js.Hadoop.Submit(ctx, spec)
	if err != nil {
		return nil, err
	}
	j := NewJob(app.ID, func(ctx context.Context) (time.Time, time.Duration, error) {
		s, err := app.Wait(ctx)
		return s.Started, s.Elapsed, err
	}, app.Kill)
	j.Check, j.Paths = check, []string{spec.Output}
	if spec.Input != "" {
		j.Paths = append(j.Paths, spec.Input)
	}
	j.Discard = func(ctx context.Context) error { return js.Hadoop.FS().Remove(ctx, spec.Output) }
	return j, nil
}

// check compares a job's output with the output that follows from the job's input.
func (js *Jobs) check(ctx context.Context, w Work, input, output string) error {
	want := js.sources[input]
	switch w.Kind {
	case hadoop.WordCount:
		return js.Hadoop.VerifyWordCount(ctx, output, want.words)
	case hadoop.Sort:
		return js.Hadoop.VerifySort(ctx, output, want.words)
	case hadoop.TeraGen:
		_, err := js.Hadoop.VerifyRows(ctx, output, w.rows(), true)
		return err
	case hadoop.TeraSort:
		return js.validateSorted(ctx, w.Queue, output, want.rows)
	}
	return js.Hadoop.VerifyTeraValidate(ctx, output, want.rows)
}

// validateSorted runs TeraValidate on TeraSort's output, with all CPUs. The output must have all
// rows of the input, in order.
func (js *Jobs) validateSorted(ctx context.Context, queue, sorted string, want hadoop.Checksum128) error {
	report := sorted + "-validated"
	j, err := js.run(ctx, hadoop.Job{Kind: hadoop.TeraValidate, Input: sorted, Output: report,
		Queue: queue}, func(ctx context.Context) error {
		return js.Hadoop.VerifyTeraValidate(ctx, report, want)
	})
	if err != nil {
		return err
	}
	if _, _, err = j.Wait(ctx); err == nil {
		err = j.Check(ctx)
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), CleanupPatience)
	defer cancel()
	return errors.Join(err, j.Kill(after), j.Discard(after))
}
