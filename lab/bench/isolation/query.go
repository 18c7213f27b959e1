package isolation

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"penstock/lab/hadoop"
	"penstock/lab/spark"
)

// queryJob is a TPC-H query as Spark SQL. Its times are the query's own, without the start of
// Spark (IBIS, section 7.4).
type queryJob struct {
	name   string
	input  string
	want   string // expected digest of its rows; "" before the first run
	app    *spark.App
	yarn   *hadoop.App
	done   chan struct{}
	cancel context.CancelFunc
	query  spark.Query // valid after done
	err    error       // valid after done
}

// startSpark starts Spark on the cluster.
func (m *Machine) startSpark(ctx context.Context) error {
	home, err := spark.Fetch(ctx, m.options.CacheDir, m.options.Progress.Printf)
	if err != nil {
		return err
	}
	m.spark, err = spark.Start(ctx, spark.Config{RunDir: m.Path("spark"), Home: home,
		Cluster: m.Hadoop, Governed: m.Governed(0), Progress: m.options.Progress.Printf})
	return err
}

// submitQuery starts the driver and returns when YARN has given the application its id.
func (m *Machine) submitQuery(ctx context.Context, s side, input, want string) (*queryJob, error) {
	script, err := spark.Script(m.Dir, spark.TPCH)
	if err != nil {
		return nil, err
	}
	app, err := m.spark.Submit(ctx, spark.Job{Name: s.kind, Script: script, Args: []string{m.Hadoop.DefaultFS() + input, s.query()},
		Queue: s.queue, Executors: executors, CPUs: fmt.Sprint(s.cpu), Cgroup: m.groups.of(s.queue),
		Settings: map[string]string{
			// Joins use the shuffle, as with tables too large for memory.
			"spark.sql.autoBroadcastJoinThreshold": "-1",
			"spark.sql.shuffle.partitions":         strconv.Itoa(s.partitions),
			"spark.sql.adaptive.enabled":           "false",
		}})
	if err != nil {
		return nil, err
	}
	watch, cancel := context.WithCancel(context.Background())
	q := &queryJob{name: s.query(), input: input, want: want, app: app, yarn: m.Hadoop.Application(app.ID),
		done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(q.done)
		q.query, q.err = app.Query(watch, q.name)
	}()
	return q, nil
}

func (q *queryJob) Application() string   { return q.app.ID }
func (q *queryJob) Done() <-chan struct{} { return q.done }

func (q *queryJob) Times() (started, finished time.Time, err error) {
	return q.query.Began, q.query.Began.Add(q.query.Elapsed), q.err
}

// end waits for the driver and for YARN.
func (q *queryJob) end(ctx context.Context) error {
	if err := q.app.Wait(ctx); err != nil {
		return err
	}
	_, err := q.yarn.Wait(ctx)
	return err
}

func (q *queryJob) Check(ctx context.Context) error {
	if q.query.SHA256 != q.want {
		return fmt.Errorf("the query returned %d rows with digest %.12s, expected %.12s as when it ran alone", q.query.Rows, q.query.SHA256, q.want)
	}
	return q.end(ctx)
}

// Discard does nothing: the rows went to the driver.
func (q *queryJob) Discard(context.Context) error { return nil }

// Kill ends the driver and the application, if they still run.
func (q *queryJob) Kill(ctx context.Context) error {
	q.app.Kill()
	err := q.yarn.Kill(ctx)
	q.cancel()
	<-q.done
	return err
}

func (q *queryJob) paths() []string { return []string{q.input} }
