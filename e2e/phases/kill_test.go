package phases

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
)

// orphanMax is the longest time that a thread may wait at a gate for a killed daemon.
const orphanMax = time.Second

// TestKillsInEveryPhase: the daemon is killed with -9 while the maps of a TeraSort spill, while its
// reduces fetch and merge, and while they write. No data is lost, no server or task waits longer
// than a second for the killed daemon, and the job ends.
func TestKillsInEveryPhase(t *testing.T) {
	const rows, kills = 4_000_000, 3
	ctx := shared.Begin(t, 8*time.Minute)
	shared.Remove(t, "/killed")
	want, err := shared.Hadoop.WriteRows(ctx, "/killed/input", hadoop.Rows{Rows: rows})
	fixture.Must(t, err)
	shared.Model(t, disk.HDD(40e6))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	tell := newTasksWaits(ctx, t)
	began := orphaned(t)
	sort := shared.Submit(ctx, t, hadoop.Job{Kind: hadoop.TeraSort, Input: "/killed/input", Output: "/killed/output", Queue: hadoop.QueueAggressor,
		Reduces: 2, Settings: map[string]string{"mapreduce.task.io.sort.mb": "16",
			"mapreduce.map.java.opts": tell.option, "mapreduce.reduce.java.opts": tell.option,
			// So that the job's progress is known to the second.
			"mapreduce.task.progress-report.interval": "250", "yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms": "250"}})
	for n := range kills {
		// One kill in each third of the job, at a random moment. The last step of progress may be
		// large, so the last moment is at 85 %.
		if due := 85 * (float64(n) + random.Float64()) / kills; !reached(ctx, t, sort, due) {
			t.Fatalf("the job has ended after %d kills", n)
		}
		before := orphaned(t)
		fixture.Must(t, shared.Nodes[0].Kill())
		time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second)))) // the daemon is away for a random time
		fixture.Must(t, shared.StartNode(ctx, 0, nil))
		fixture.Must(t, shared.AwaitAgents(ctx, 0, 2))
		for server, is := range orphaned(t) {
			waits := is.OrphanedWaits - before[server].OrphanedWaits
			var longest time.Duration
			if waits > 0 {
				longest = time.Duration(is.OrphanedWaitNanosLatest)
			}
			t.Logf("kill %d: %d waits in the %s, the longest %v", n+1, waits, server, longest)
			if longest > orphanMax {
				t.Errorf("kill %d: a thread waited for %v in the %s", n+1, longest, server)
			}
		}
	}
	if _, err := sort.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	for server, is := range orphaned(t) {
		t.Logf("after %d kills: %d waits in the %s, the longest %v", kills, is.OrphanedWaits-began[server].OrphanedWaits, server, time.Duration(is.OrphanedWaitNanosLongest))
		if longest := time.Duration(is.OrphanedWaitNanosLongest); is.OrphanedWaits > began[server].OrphanedWaits && longest > orphanMax {
			t.Errorf("a thread waited for %v in the %s", longest, server)
		}
	}
	if got, err := shared.Hadoop.VerifyRows(ctx, "/killed/output", rows, false); err != nil || got != want {
		t.Errorf("TeraSort's output: %v, %v, want %v", got, err, want)
	}
	validate := shared.Submit(ctx, t, hadoop.Job{Kind: hadoop.TeraValidate, Input: "/killed/output", Output: "/killed/report", Queue: hadoop.QueueProtected})
	if _, err := validate.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	fixture.Check(t, shared.Hadoop.VerifyTeraValidate(ctx, "/killed/report", want))
	c, err := sort.Counters(ctx)
	fixture.Must(t, err)
	tell.judge(t, c["Launched map tasks"]+c["Launched reduce tasks"]) // which have long ended by now
}

// waits are an agent's counts, since its start, of waits that ended without a daemon.
type waits struct{ OrphanedWaits, OrphanedWaitNanosLongest, OrphanedWaitNanosLatest int64 }

// orphaned asks the servers' agents.
func orphaned(t *testing.T) map[string]waits {
	t.Helper()
	all := map[string]waits{}
	for server, url := range map[string]string{"DataNode": shared.Hadoop.DataNodeURL(0), "NodeManager": shared.Hadoop.NodeManagerURL(0)} {
		var w waits
		fixture.Bean(t, url, "penstock:type=Agent", &w)
		all[server] = w
	}
	return all
}

// tasksWaits makes tasks record, at their end, the waits without a daemon that Penstock's client in
// them has counted. The agent of the soak does this, because tasks have no address at which they
// can be queried.
type tasksWaits struct {
	dir    string
	option string // of their JVMs
}

func newTasksWaits(ctx context.Context, t *testing.T) *tasksWaits {
	t.Helper()
	source := filepath.Join("..", "..", "lab", "bench", "soak", "Waits.java")
	// Not t.TempDir, because a container may have no access to its parent folders.
	dir, err := os.MkdirTemp(shared.Dir, "waits-")
	fixture.Must(t, err)
	w := &tasksWaits{dir: filepath.Join(dir, "told")}
	classes, manifest, jar := filepath.Join(dir, "classes"), filepath.Join(dir, "manifest"), filepath.Join(dir, "waits.jar")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(classes, 0o755), os.Mkdir(w.dir, 0o777), os.Chmod(w.dir, 0o777),
		os.WriteFile(manifest, []byte("Premain-Class: Waits\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"javac", "-d", classes, source}, {"jar", "--create", "--file", jar, "--manifest", manifest, "-C", classes, "Waits.class"},
	} {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("make the tasks' agent (needs a JDK): %v: %s", err, out)
		}
	}
	w.option = fmt.Sprintf("-Xmx400m -XX:+UseSerialGC -javaagent:%s=%s", jar, w.dir)
	return w
}

// judge reads the records of ended tasks. A task that is killed at the job's end may leave no
// record.
func (w *tasksWaits) judge(t *testing.T, launched int64) {
	t.Helper()
	files, err := os.ReadDir(w.dir)
	fixture.Must(t, err)
	var waits int64
	var longest time.Duration
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(w.dir, f.Name()))
		fixture.Must(t, err)
		var count, nanos int64
		if _, err := fmt.Sscan(string(text), &count, &nanos); err != nil {
			t.Fatalf("%s has the record %q: %v", f.Name(), text, err)
		}
		waits, longest = waits+count, max(longest, time.Duration(nanos))
	}
	t.Logf("%d waits in %d of %d tasks, the longest %v", waits, len(files), launched, longest)
	if len(files) == 0 {
		t.Error("no task has recorded its waits")
	}
	if longest > orphanMax {
		t.Errorf("a thread waited for %v in a task", longest)
	}
}

// reached waits until the application's progress has reached the given percentage: the maps are the
// first half, the reduces the second. It returns false if the application ends before.
func reached(ctx context.Context, t testing.TB, app *hadoop.App, percent float64) bool {
	t.Helper()
	for {
		s, err := app.Status(ctx)
		fixture.Must(t, err)
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
