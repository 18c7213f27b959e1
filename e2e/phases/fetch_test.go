package phases

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/hadoop"
)

// BenchmarkNeighboursFetch measures how long a TeraSort's reduces fetch, alone and while the
// NodeManager limits the shuffle of another TeraSort. One iteration is a pair of runs:
//
//	go test -run - -bench NeighboursFetch -benchtime 7x ./e2e/phases
func BenchmarkNeighboursFetch(b *testing.B) {
	const rows, limit = 600_000, fixture.MiB
	ctx := shared.Begin(b, time.Hour)
	shared.Remove(b, "/fetch")
	if _, err := shared.Hadoop.WriteRows(ctx, "/fetch/input", hadoop.Rows{Rows: rows}); err != nil {
		b.Fatal(err)
	}
	seq := 0
	run := func(queue string) *hadoop.App {
		seq++
		return shared.Submit(ctx, b, hadoop.Job{Kind: hadoop.TeraSort, Input: "/fetch/input", Output: fmt.Sprint("/fetch/output", seq), Queue: queue, Reduces: 2,
			Settings: map[string]string{"mapreduce.job.reduce.slowstart.completedmaps": "1.0", "mapreduce.jobhistory.jhist.format": "json"}})
	}
	fetch := func() time.Duration {
		app := run(hadoop.QueueProtected)
		if _, err := app.Wait(ctx); err != nil {
			b.Fatal(err)
		}
		return fetched(ctx, b, app)
	}
	fetch() // the first job of a cluster takes longer
	var alone, beside, ratios []float64
	for b.Loop() {
		one := fetch()
		held := run(hadoop.QueueAggressor)
		if !reached(ctx, b, held, 49) { // its maps are done; their I/O would be limited as well
			b.Fatal("the limited job has ended before it was limited")
		}
		shared.Weights(b, fmt.Sprintf("default: 10\nrules:\n  - {application: %s, limit: %d}\n", held.ID, limit))
		fixture.Eventually(b, "the limited job's shuffle runs", func() bool { return fixture.Streamed(shared.Look(b), held.ID, "network").Written > fixture.MiB })
		two := fetch()
		if s, err := held.Status(ctx); err != nil || s.Ended() {
			b.Fatalf("the limited job has ended before the other: %v, %v", s, err)
		}
		if err := held.Kill(ctx); err != nil {
			b.Fatal(err)
		}
		alone, beside = append(alone, one.Seconds()), append(beside, two.Seconds())
		ratios = append(ratios, two.Seconds()/one.Seconds())
		b.Logf("fetch alone %.2f s, beside %.2f s", one.Seconds(), two.Seconds())
	}
	for _, all := range [][]float64{alone, beside, ratios} {
		slices.Sort(all)
	}
	b.ReportMetric(alone[len(alone)/2], "s-alone")
	b.ReportMetric(beside[len(beside)/2], "s-beside")
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(ratios[0], "least-ratio")
	b.ReportMetric(ratios[len(ratios)-1], "greatest-ratio")
	b.ReportMetric(0, "ns/op")
}

// fetched returns the average time that an ended job's reduces took to fetch, from their events in
// the job's history.
func fetched(ctx context.Context, t testing.TB, app *hadoop.App) time.Duration {
	t.Helper()
	fs := shared.Hadoop.FS()
	files, err := fs.List(ctx, shared.Hadoop.HistoryDir())
	fixture.Must(t, err)
	job := strings.Replace(app.ID, "application_", "job_", 1)
	at := slices.IndexFunc(files, func(f hadoop.File) bool {
		return strings.HasPrefix(path.Base(f.Path), job) && strings.HasSuffix(f.Path, ".jhist")
	})
	if at < 0 {
		t.Fatalf("no history of %s", job)
	}
	text, err := fs.Read(ctx, files[at].Path)
	fixture.Must(t, err)
	started := map[string]int64{}
	var sum time.Duration
	n := 0
	for line := range bytes.Lines(text) {
		var e struct {
			Type  string
			Event map[string]struct {
				AttemptID         string `json:"attemptId"`
				StartTime         int64  `json:"startTime"`
				ShuffleFinishTime int64  `json:"shuffleFinishTime"`
			}
		}
		if json.Unmarshal(line, &e) != nil {
			continue // the schema in the first line
		}
		for _, v := range e.Event {
			switch e.Type {
			case "REDUCE_ATTEMPT_STARTED":
				started[v.AttemptID] = v.StartTime
			case "REDUCE_ATTEMPT_FINISHED":
				sum += time.Duration(v.ShuffleFinishTime-started[v.AttemptID]) * time.Millisecond
				n++
			}
		}
	}
	if n == 0 {
		t.Fatalf("no reduces in %s", files[at].Path)
	}
	return sum / time.Duration(n)
}
