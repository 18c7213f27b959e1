package phases

import (
	"context"
	"fmt"
	"log/slog"
	"os/user"
	"reflect"
	"testing"
	"time"

	"penstock/broker/applications"
	"penstock/core/policy"
	"penstock/e2e/internal/fixture"
	"penstock/lab/hadoop"
	"penstock/lab/spark"
)

// TestSparkStandalone: a PySpark program runs on a standalone master and worker. Its executors are
// one flow, identified by the directories that they run in. The bytes that they read, spill,
// shuffle and write match Spark's counts.
func TestSparkStandalone(t *testing.T) {
	ctx := shared.Begin(t, 5*time.Minute)
	shared.Remove(t, "/lines")
	if _, err := shared.Hadoop.WriteText(ctx, "/lines/input", hadoop.Text{Seed: 11, Files: 2, FileBytes: 24 * fixture.MiB}); err != nil {
		t.Fatal(err)
	}
	s := newSpark(ctx, t, true, map[string]string{
		"spark.shuffle.sort.bypassMergeThreshold": "1", // as in TestEveryByteHasItsOwner
		"spark.executor.memory":                   "512m",
	})
	fixture.Must(t, shared.Forget())
	before := shared.Settled(t)
	sort, err := s.Submit(ctx, spark.Job{Name: "sort", Script: script(t, spark.Sort),
		Args: []string{shared.Hadoop.DefaultFS() + "/lines/input", shared.Hadoop.DefaultFS() + "/lines/output", "4"}})
	fixture.Must(t, err)
	known(ctx, t, s, policy.Facts{Flow: sort.ID, Name: "sort", User: owner(t), Type: "SPARK"})
	fixture.Must(t, sort.Wait(ctx))
	after := shared.Settled(t)
	fixture.AlikeSpark(t, "Spark's sort", before, after, s, sort)
	if was, is := fixture.Streamed(before, "unattributed", "persistent"), fixture.Streamed(after, "unattributed", "persistent"); was != is {
		t.Errorf("unattributed: %+v, and before %+v", is, was)
	}
	fixture.Ordered(t, shared.Hadoop.FS(), "/lines/output")
}

// known waits until a broker would know the running application from the master's answer.
func known(ctx context.Context, t *testing.T, s *spark.Spark, want policy.Facts) {
	t.Helper()
	d, err := applications.New(applications.Options{SparkMasters: []string{s.MasterPage()}, Log: slog.New(slog.DiscardHandler)})
	fixture.Must(t, err)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		d.Run(ctx, func([]string) {})
		close(ended)
	}()
	fixture.Eventually(t, fmt.Sprintf("the master says %+v", want), func() bool {
		return reflect.DeepEqual(d.Facts(want.Flow), want) && d.State(want.Flow) == "RUNNING"
	})
	cancel()
	<-ended
}

// owner returns the user of the test's processes.
func owner(t *testing.T) string {
	t.Helper()
	u, err := user.Current()
	fixture.Must(t, err)
	return u.Username
}
