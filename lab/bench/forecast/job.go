package forecast

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"penstock/lab/hadoop"
	"penstock/lab/spark"
)

// job is a submitted application.
type job struct {
	id     string
	app    *hadoop.App
	driver *spark.App // nil for MapReduce
	output string     // folder to remove; "" for Spark
	check  func(context.Context) error
}

// wait waits for the application's end, according to YARN.
func (j *job) wait(ctx context.Context) (hadoop.Status, error) {
	if j.driver != nil { // a driver that fails says more than YARN
		if err := j.driver.Wait(ctx); err != nil {
			return hadoop.Status{}, fmt.Errorf("%w: see %s", err, j.driver.Log)
		}
	}
	return j.app.Wait(ctx)
}

// kill ends the application.
func (j *job) kill(ctx context.Context) error {
	if j.driver != nil {
		j.driver.Kill()
		return nil
	}
	return j.app.Kill(ctx)
}

// submit starts a row's job and returns when YARN has given the application its id.
func (m *machine) submit(ctx context.Context, name string) (*job, error) {
	m.jobs++
	s, fs := m.setup, m.Hadoop.DefaultFS()
	switch name {
	case query:
		j, err := m.submitSpark(ctx, name, spark.TPCH, fs+tablesDir, s.Query)
		if err != nil {
			return nil, err
		}
		j.check = func(ctx context.Context) error { return m.checkQuery(ctx, j.driver) }
		return j, nil
	case kMeans:
		return m.submitSpark(ctx, name, spark.MLlib, "kmeans", fs+pointsDir)
	case bayes:
		return m.submitSpark(ctx, name, spark.MLlib, "bayes", fs+textDir)
	}
	spec := hadoop.Job{Queue: queue, Output: fmt.Sprintf("/output/%s-%d", name, m.jobs), Reduces: s.Reduces,
		Settings: map[string]string{"mapreduce.job.running.map.limit": strconv.Itoa(s.Maps)}}
	var check func(context.Context) error
	switch name {
	case wordCount:
		spec.Kind, spec.Input, spec.Reduces = hadoop.WordCount, textDir, 1
		check = func(ctx context.Context) error { return m.Hadoop.VerifyWordCount(ctx, spec.Output, m.words) }
	case teraSort:
		spec.Kind, spec.Input = hadoop.TeraSort, rowsDir
		check = func(ctx context.Context) error {
			sum, err := m.Hadoop.VerifyRows(ctx, spec.Output, s.RowBytes/hadoop.RowBytes, false)
			if err == nil && sum != m.rows {
				err = fmt.Errorf("the checksum of the output %s is %v, expected %v as in the input", spec.Output, sum, m.rows)
			}
			return err
		}
	case sorting:
		spec.Kind, spec.Input = hadoop.Sort, sortDir
		check = func(ctx context.Context) error { return m.Hadoop.VerifySort(ctx, spec.Output, m.lines) }
	}
	app, err := m.Hadoop.Submit(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &job{id: app.ID, app: app, output: spec.Output, check: check}, nil
}

// submitSpark starts one of package spark's programs on YARN.
func (m *machine) submitSpark(ctx context.Context, name, program string, args ...string) (*job, error) {
	script, err := spark.Script(m.Dir, program)
	if err != nil {
		return nil, err
	}
	driver, err := m.spark.Submit(ctx, spark.Job{Name: name, Script: script, Args: args, Queue: queue, Executors: executors,
		Settings: map[string]string{
			// Joins use the shuffle, as with tables too large for memory.
			"spark.sql.autoBroadcastJoinThreshold": "-1",
			"spark.sql.shuffle.partitions":         strconv.Itoa(m.setup.Partitions),
			"spark.sql.adaptive.enabled":           "false",
		}})
	if err != nil {
		return nil, err
	}
	return &job{id: driver.ID, app: m.Hadoop.Application(driver.ID), driver: driver, check: func(context.Context) error {
		_, err := driver.Report(regexp.MustCompile(`(?m)^\{"job": .*\}$`))
		return err
	}}, nil
}

// checkQuery checks that the query has returned the same rows as in its first run.
func (m *machine) checkQuery(ctx context.Context, driver *spark.App) error {
	q, err := driver.Query(ctx, m.setup.Query)
	if err != nil {
		return err
	}
	if m.answer == "" {
		m.answer = q.SHA256
	}
	if q.Rows == 0 || q.SHA256 != m.answer {
		return fmt.Errorf("the query returned %d rows with digest %.12s, expected %.12s as in its first run", q.Rows, q.SHA256, m.answer)
	}
	return nil
}

// remove removes a job's output.
func (m *machine) remove(ctx context.Context, j *job) error {
	if j.output == "" {
		return nil
	}
	return m.Hadoop.FS().Remove(ctx, j.output)
}
