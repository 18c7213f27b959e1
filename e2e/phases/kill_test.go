package phases

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"penstock/testbed/disk"
	"penstock/testbed/hadoop"
)

// TestKillsInEveryPhase: kill -9 of the daemon while the maps of a TeraSort spill, while
// its reduces fetch and merge, and while they write. Nothing is lost, and it ends.
func TestKillsInEveryPhase(t *testing.T) {
	const rows, kills = 4_000_000, 3
	ctx := begin(t, 8*time.Minute)
	remove(t, "/killed")
	want, err := bed.cluster.WriteRows(ctx, "/killed/input", hadoop.Rows{Rows: rows})
	if err != nil {
		t.Fatal(err)
	}
	model(t, disk.HDD(40e6))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	sort := submit(ctx, t, hadoop.Job{Kind: hadoop.TeraSort, Input: "/killed/input", Output: "/killed/output", Queue: hadoop.QueueAggressor,
		Reduces: 2, Settings: map[string]string{"mapreduce.task.io.sort.mb": "16",
			// So that how far it is is known to the second.
			"mapreduce.task.progress-report.interval": "250", "yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms": "250"}})
	for n := range kills {
		// A third of the job for each, and a moment somewhere in it; the end may come in one step.
		if due := 85 * (float64(n) + random.Float64()) / kills; !reached(ctx, t, sort, due) {
			t.Fatalf("it has ended after %d kills", n)
		}
		if err := bed.daemon.Kill(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second)))) // it is away for as long as it is
		if err := startDaemon(ctx); err != nil {
			t.Fatal(err)
		}
		if err := agents(ctx, 2); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sort.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := bed.cluster.VerifyRows(ctx, "/killed/output", rows, false); err != nil || got != want {
		t.Errorf("TeraSort's output: %v, %v, want %v", got, err, want)
	}
	validate := submit(ctx, t, hadoop.Job{Kind: hadoop.TeraValidate, Input: "/killed/output", Output: "/killed/report", Queue: hadoop.QueueProtected})
	if _, err := validate.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if err := bed.cluster.VerifyTeraValidate(ctx, "/killed/report", want); err != nil {
		t.Error(err)
	}
}

// reached waits until the application says that so many per cent of it are done: the maps
// are the first half, the reduces the second. False: it has ended before.
func reached(ctx context.Context, t testing.TB, app *hadoop.App, percent float64) bool {
	t.Helper()
	for {
		s, err := app.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if s.Ended() {
			return false
		}
		if s.Progress >= percent {
			return true
		}
		select {
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
