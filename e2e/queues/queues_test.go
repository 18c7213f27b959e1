package queues

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"penstock/broker/applications"
	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/stand"
	"penstock/node/status"
)

// generate is a TeraGen with one map that writes for longer than a test takes. Its
// ApplicationMaster and its map request the given MB/s.
func generate(queue, user, tags string, master, task int) hadoop.Job {
	const resource = "resource." + hadoop.BandwidthResource
	return hadoop.Job{Kind: hadoop.TeraGen, Rows: 50_000_000, Maps: 1, Output: "/" + user, Queue: queue, User: user, Settings: map[string]string{
		"mapreduce.job.tags":                tags,
		"yarn.app.mapreduce.am." + resource: fmt.Sprintf("%dM", master),
		"mapreduce.map." + resource:         fmt.Sprintf("%dM", task),
	}}
}

// length bounds the test; each of its waits has its own bound. In this time the disk can write
// little more than half of one job's data.
const (
	length = 8 * time.Minute
	rate   = 6_000_000 // bytes a second
)

func kill(t *testing.T, app *hadoop.App) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stand.Patience)
	defer cancel()
	fixture.Check(t, app.Kill(ctx))
}

// submit submits a job, which takes as long as the start of a JVM. The returned function waits for
// that.
func submit(ctx context.Context, job hadoop.Job) func(*testing.T) *hadoop.App {
	var app *hadoop.App
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		app, err = shared.Hadoop.Submit(ctx, job)
	}()
	return func(t *testing.T) *hadoop.App {
		t.Helper()
		if <-done; err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { kill(t, app) })
		return app
	}
}

// TestQueuesAndBandwidth: rules on queue and tag turn the ResourceManager's facts about two jobs
// into weights on the node. The ResourceManager runs one job and lets the other wait, because
// together they request more MB/s than the node offers. Weights are the MB/s that jobs hold. When
// the ResourceManager is killed, its standby has the same facts. After the broker's end, a job is
// still in its queue according to the policy.
func TestQueuesAndBandwidth(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), length)
	t.Cleanup(cancel)
	fixture.Must(t, shared.Disks[0].SetModel(disk.HDD(rate)))
	t.Cleanup(func() {
		fixture.Check(t, shared.Disks[0].SetModel(disk.Model{}))
	})
	// The first version of the policy is applied before the flow exists. So the weight cannot be
	// the node's own.
	policy := func(t *testing.T, text string) {
		t.Helper()
		fixture.Must(t, shared.SetPolicy(text))
	}
	policy(t, "rules:\n  - {queue: 'root.etl.*', user: alice, type: MAPREDUCE, name: 'Tera*', weight: 7}\n")
	first, err := shared.Hadoop.Submit(ctx, generate("root.etl.night", "alice", "gold,Team-A", 20, 40))
	fixture.Must(t, err)
	t.Cleanup(func() { kill(t, first) })
	fixture.Eventually(t, "the first job holds its bandwidth", func() bool { return known(first.ID).Bandwidth == 60 })
	next := submit(ctx, generate("root.adhoc", "bob", "silver", 60, 30))
	a := known(first.ID)
	tags := slices.Clone(a.Tags)
	slices.Sort(tags)
	if a.Queue != "root.etl.night" || a.User != "alice" || a.Name != "TeraGen" || a.Type != "MAPREDUCE" || a.State != "RUNNING" ||
		!slices.Equal(tags, []string{"gold", "team-a"}) {
		t.Errorf("the directory's entry of the first job: %+v", a)
	}
	fixture.Eventually(t, "a rule on queue, user, type and name", func() bool { return weight(t, first.ID) == 7 })
	policy(t, "rules:\n  - {tag: gold, weight: 11}\n  - {queue: 'root.etl.*', weight: 7}\n")
	fixture.Eventually(t, "a rule on a tag", func() bool { return weight(t, first.ID) == 11 })
	policy(t, "rules:\n  - {queue: 'root.*', weight: 2, bandwidth: true}\n")
	fixture.Eventually(t, "the weight is the bandwidth that is held", func() bool { return weight(t, first.ID) == 60 })

	second := next(t)
	waiting := func() hadoop.Status {
		s, err := second.Status(ctx)
		fixture.Must(t, err)
		return s
	}
	fixture.Eventually(t, "the second job is accepted", func() bool { return waiting().State == "ACCEPTED" && known(second.ID).State == "ACCEPTED" })
	// The second job keeps waiting while the first one writes, for many of the NodeManager's
	// heartbeats.
	from := written(t, first.ID)
	fixture.Eventually(t, "the first job writes", func() bool { return written(t, first.ID) > from+16*fixture.MiB })
	if s := waiting(); s.State != "ACCEPTED" || s.Containers != 0 {
		t.Errorf("the second job, which has to wait: %+v", s)
	}
	if b := known(second.ID); b.Bandwidth != 0 || b.Queue != "root.adhoc" || b.User != "bob" {
		t.Errorf("the directory's entry of the second job while it waits: %+v", b)
	}

	kill(t, first)
	fixture.Eventually(t, "the second job holds its bandwidth", func() bool { return known(second.ID).Bandwidth == 90 })
	fixture.Eventually(t, "its weight is the bandwidth", func() bool { return weight(t, second.ID) == 90 })
	fixture.Eventually(t, "the first job holds nothing", func() bool { a := known(first.ID); return a.Ended && a.Bandwidth == 0 && a.User == "alice" })

	policy(t, "queues:\n  - {queue: root.etl, weight: 2}\n  - {queue: root.adhoc, weight: 3}\nrules:\n  - {queue: 'root.*', weight: 2, bandwidth: true}\n")
	fixture.Eventually(t, "the node knows the second job's queue", func() bool {
		f := flow(t, second.ID)
		return f.Queue == "root.adhoc" && f.Weight == 90
	})
	failover(ctx, t, second)
	fixture.Must(t, shared.Broker.Kill())
	fixture.Eventually(t, "local shares are in force", func() bool {
		doc, err := status.Fetch(ctx, shared.Nodes[0].Address)
		fixture.Must(t, err)
		return doc.Cluster.Broker == "" && !doc.Cluster.InForce
	})
	if f := flow(t, second.ID); f.Queue != "root.adhoc" || f.Weight != 90 || f.Part != 0 {
		t.Errorf("with local shares the second job's flow is %+v", f)
	}
	from = written(t, second.ID)
	fixture.Eventually(t, "the second job writes", func() bool { return written(t, second.ID) > from })
}

// failover kills the active one of the two ResourceManagers while a job runs. The job's weight is
// the MB/s that it holds. This weight must not change at the node while no ResourceManager answers,
// nor while the new one does not know yet which containers run. The new one must also know a new
// job.
func failover(ctx context.Context, t *testing.T, running *hadoop.App) {
	fixture.Must(t, shared.Hadoop.AwaitStandby(ctx))
	died, err := shared.Hadoop.ActiveResourceManager(ctx)
	fixture.Must(t, err)
	took, was := 1-died, known(running.ID)
	begin := time.Now()
	fixture.Must(t, shared.Hadoop.KillResourceManager(died))
	next := submit(ctx, generate("root.etl.night", "carol", "late", 10, 10)) // its client looks for the active ResourceManager as well
	unchanged := func(what string, holds func() bool) {
		t.Helper()
		fixture.Eventually(t, what, func() bool {
			if f := flow(t, running.ID); f.Weight != 90 || f.Queue != "root.adhoc" {
				t.Fatalf("%.1f s into the failover the job's flow is %+v", time.Since(begin).Seconds(), f)
			}
			if a := known(running.ID); !reflect.DeepEqual(a.Facts, was.Facts) || a.Ended {
				t.Fatalf("%.1f s into the failover the job is %+v", time.Since(begin).Seconds(), a)
			}
			return holds()
		})
		t.Logf("%.1f s after the ResourceManager was killed: %s", time.Since(begin).Seconds(), what)
	}
	unchanged("the other ResourceManager is active", func() bool {
		i, err := shared.Hadoop.ActiveResourceManager(ctx)
		return err == nil && i == took
	})
	source := func() applications.Source { return directory.Sources()[0] }
	unchanged("it has reported the applications", func() bool {
		s := source()
		return s.Address == shared.Hadoop.ResourceManagerURLs()[took] && s.Answered.After(begin) && s.Error == ""
	})
	unchanged("it has the job's containers", func() bool {
		s, err := running.Status(ctx)
		return err == nil && s.State == "RUNNING" && s.Containers == 2
	})
	wrote := written(t, running.ID)
	unchanged("the job writes", func() bool { return written(t, running.ID) > wrote })
	app := next(t)
	unchanged("a new job is known", func() bool {
		a := known(app.ID)
		return a.Queue == "root.etl.night" && a.User == "carol" && slices.Equal(a.Tags, []string{"late"})
	})
	unchanged("the node has its queue and weight", func() bool {
		f := flow(t, app.ID)
		return f.Queue == "root.etl" && f.Weight == 10
	})
}
