package isolation

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"penstock/lab/contest"
	"penstock/lab/spark"
)

// startSpark starts Spark on the cluster.
func (m *Machine) startSpark(ctx context.Context) error {
	home, err := spark.Fetch(ctx, m.request.CacheDir, spark.Version, m.request.say)
	if err != nil {
		return err
	}
	m.spark, err = spark.Start(ctx, spark.Config{RunDir: m.Path("spark"), Home: home,
		Cluster: m.Hadoop, Governed: m.Governed(0), Progress: m.request.say})
	return err
}

// submitQuery runs a TPC-H query as Spark SQL: it starts the driver and returns when YARN has given
// the application its id. The job's times are the query's own, without the start of Spark (IBIS,
// section 7.4). The query's rows go to the driver, and right checks them.
func (m *Machine) submitQuery(ctx context.Context, s side, input string, right func(spark.Query) error) (*contest.Job, error) {
	script, err := spark.Script(m.Dir, spark.TPCH)
	if err != nil {
		return nil, err
	}
	app, err := m.spark.Submit(ctx, spark.Job{Name: s.kind, Script: script, Args: []string{m.Hadoop.DefaultFS() + input, s.query()},
		Queue: s.queue, Executors: executors, CPUs: fmt.Sprint(s.CPU), Cgroup: m.groups.of(s.queue),
		Settings: map[string]string{
			// Joins use the shuffle, as with tables too large for memory.
			"spark.sql.autoBroadcastJoinThreshold": "-1",
			"spark.sql.shuffle.partitions":         strconv.Itoa(s.Partitions),
			"spark.sql.adaptive.enabled":           "false",
		}})
	if err != nil {
		return nil, err
	}
	onYARN := m.Hadoop.Application(app.ID)
	var query spark.Query
	j := contest.NewJob(app.ID, func(ctx context.Context) (_ time.Time, _ time.Duration, err error) {
		query, err = app.Query(ctx, s.query())
		return query.Began, query.Elapsed, err
	}, func(ctx context.Context) error { // the driver and the application, if they still run
		app.Kill()
		return onYARN.Kill(ctx)
	})
	j.Paths = []string{input}
	j.Check = func(ctx context.Context) error {
		if err := right(query); err != nil {
			return err
		}
		if err := app.Wait(ctx); err != nil {
			return err
		}
		_, err := onYARN.Wait(ctx)
		return err
	}
	return j, nil
}

// answer is the digest of the rows that a query must return.
type answer struct {
	of     side
	sha256 string
}

// same checks that a query returned the same rows as when it ran alone.
func (a answer) same(q spark.Query) error {
	if q.SHA256 != a.sha256 {
		return fmt.Errorf("the query returned %d rows with digest %.12s, expected %.12s as when it ran alone", q.Rows, q.SHA256, a.sha256)
	}
	return nil
}
