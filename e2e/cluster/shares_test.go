package cluster

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/bench/coordination"
	"penstock/lab/disk"
	"penstock/lab/judge"
)

const (
	settling = 10 * time.Second
	measured = 16 * time.Second
	kills    = 3 // of the broker, at random
)

// TestSharesOfTheCluster: tasks of three applications are unevenly distributed over three nodes.
// With local shares, the totals are far from the weights. With the broker they are as close to the
// weights as the placement allows, even if the broker is killed repeatedly. During its outage
// nothing waits for it, and local shares are in force. No written data is lost.
func TestSharesOfTheCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	t.Cleanup(cancel)
	must := func(err error) {
		t.Helper()
		fixture.Must(t, err)
	}
	contest := coordination.Uneven
	load := machine.Work(ctx, contest)
	t.Cleanup(func() {
		fixture.Check(t, load.Stop())
	})
	must(machine.Slow(true))
	must(machine.Apply(ctx, coordination.Policy(contest)))
	window := func() judge.Window {
		time.Sleep(settling)
		from := disk.Monotonic()
		time.Sleep(measured)
		return judge.Window{From: from, To: disk.Monotonic()}
	}
	windows := []judge.Window{window()}

	must(machine.Broker.Kill())
	must(machine.InForce(ctx, 0, false))
	windows = append(windows, window())

	begin := time.Now()
	must(machine.StartBroker(ctx))
	must(machine.InForce(ctx, 0, true))
	t.Logf("the broker's start to totals in force everywhere: %.1f s", time.Since(begin).Seconds())
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	time.Sleep(settling)
	t.Logf("before the kills the longest pause of a task was %d ms", load.Longest().Milliseconds())
	killed, err := machine.KillBroker(ctx, contest, load, kills, rand.New(rand.NewPCG(seed, 0)))
	must(err)
	t.Logf("%d kills: %.2f %% of the service misplaced: totals %.3f; the longest pause of a task was %d ms", killed.Kills, 100*killed.Outcome.Misplaced, killed.Outcome.Totals, killed.PauseMS)
	fixture.Check(t, killed.Wrong())
	for node := range machine.Nodes {
		doc, err := machine.Status(ctx, node)
		must(err)
		for _, d := range doc.Devices {
			for _, f := range d.Flows {
				t.Logf("node %d, %s: %s has weight %d, part %.2f", node, d.Name, f.Name, f.Weight, f.Part)
			}
		}
	}
	must(machine.Slow(false))
	must(load.Stop())
	files, err := load.Verify(ctx)
	must(err)
	t.Logf("%d files are as they were written", files)

	for i, name := range []string{"with the broker", "without"} {
		got, err := machine.Judge(ctx, contest, windows[i])
		must(err)
		t.Logf("%s: %.2f %% of the service misplaced: totals %.3f; by node %.3f; busy %.2f", name, 100*got.Misplaced, got.Totals, got.ByNode, got.Busy)
		if got.Busy < 0.9 {
			t.Errorf("%s: a disk was busy for the applications for only %.2f of the time", name, got.Busy)
		}
		if with := i == 0; with && got.Misplaced > 0.03 {
			t.Errorf("%s: %.2f %% of the service misplaced, want at most 3 %%", name, 100*got.Misplaced)
		} else if !with && got.Misplaced < 0.1 {
			t.Errorf("without the broker only %.2f %% of the service is misplaced: this test has shown nothing", 100*got.Misplaced)
		}
	}
}
