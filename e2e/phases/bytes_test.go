package phases

import (
	"context"
	"math"
	"path"
	"strings"
	"testing"
	"time"

	"penstock/node/status"
	"penstock/testbed/disk"
	"penstock/testbed/hadoop"
	"penstock/testbed/judge"
	"penstock/testbed/spark"
	"penstock/testbed/tpch"
)

// TestEveryByteHasItsOwner: a TeraSort, a WordCount and Spark SQL run together beside a
// shell that does nothing. What Penstock saw of each is what the jobs counted themselves.
func TestEveryByteHasItsOwner(t *testing.T) {
	const rows = 1_000_000
	ctx := begin(t, 8*time.Minute)
	cluster := bed.cluster
	for _, path := range []string{"/tera", "/words", "/tpch"} {
		remove(t, path)
	}
	want, err := cluster.WriteRows(ctx, "/tera/input", hadoop.Rows{Rows: rows})
	if err != nil {
		t.Fatal(err)
	}
	text, err := cluster.WriteText(ctx, "/words/input", hadoop.Text{Seed: 7, Files: 2, FileBytes: 48 * mib})
	if err != nil {
		t.Fatal(err)
	}
	generator, err := tpch.Fetch(ctx, bed.cache)
	if err != nil {
		t.Fatal(err)
	}
	if err := tpch.Load(ctx, cluster.FS(), generator, bed.dir, "/tpch", 0.2, 4); err != nil {
		t.Fatal(err)
	}
	s := newSpark(ctx, t, false, map[string]string{
		"spark.sql.autoBroadcastJoinThreshold": "-1", // every join shuffles
		"spark.sql.shuffle.partitions":         "8",
		// Else small shuffles are written twice and read once more than Spark counts.
		"spark.shuffle.sort.bypassMergeThreshold": "1",
		// Else the indexes in the files are read as streams: of such a stream a DataNode
		// reads and sends more than its client takes, which is I/O, and not Spark's count.
		"spark.sql.parquet.filterPushdown": "false",
	})
	forget(t)
	before, logged := settled(t), logBytes(t)

	sort := submit(ctx, t, hadoop.Job{Kind: hadoop.TeraSort, Input: "/tera/input", Output: "/tera/output", Queue: hadoop.QueueAggressor, Reduces: 2,
		Settings: map[string]string{"mapreduce.task.io.sort.mb": "16"}})
	count := submit(ctx, t, hadoop.Job{Kind: hadoop.WordCount, Input: "/words/input", Output: "/words/output", Queue: hadoop.QueueProtected})
	sql, err := s.Submit(ctx, spark.Job{Name: "tpch", Script: script(t, spark.TPCH), Queue: hadoop.QueueProtected,
		Args: []string{cluster.DefaultFS() + "/tpch", "q9", "q21"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, app := range []*hadoop.App{sort, count} {
		if _, err := app.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := sql.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	after := settled(t)
	logged = logBytes(t) - logged

	saw := func(flow, kind string) status.Pair {
		from, to := moved(before, flow, kind), moved(after, flow, kind)
		return status.Pair{Read: to.Read - from.Read, Written: to.Written - from.Written}
	}
	for _, app := range []*hadoop.App{sort, count} {
		c, err := app.Counters(ctx)
		if err != nil {
			t.Fatal(err)
		}
		name := string(app.Job.Kind)
		hdfs, local, network := saw(app.ID, "persistent"), saw(app.ID, "intermediate"), saw(app.ID, "network")
		alike(t, name+": read from HDFS", hdfs.Read, c["HDFS: Number of bytes read"])
		// The job's history is the application's as well, but for a file whose connection was
		// over before anybody could look whose it is.
		tasks, master := c["HDFS: Number of bytes written"], history(ctx, t, app)
		alike(t, name+": written to HDFS", hdfs.Written, min(max(hdfs.Written, tasks), tasks+master))
		// What the NodeManager reads of the maps' outputs is on their application's account.
		alike(t, name+": read from local disks", local.Read, c["FILE: Number of bytes read"]+c["Reduce shuffle bytes"])
		alike(t, name+": written to local disks", local.Written, c["FILE: Number of bytes written"])
		alike(t, name+": shuffled", network.Read+network.Written, c["Reduce shuffle bytes"])
	}
	c, err := s.Counters(sql)
	if err != nil {
		t.Fatal(err)
	}
	hdfs, local := saw(sql.ID, "persistent"), saw(sql.ID, "intermediate")
	alike(t, "Spark SQL: read from HDFS", hdfs.Read, c.Read)
	alike(t, "Spark SQL: read from local disks", local.Read, c.ShuffleRead+c.Spilled)
	alike(t, "Spark SQL: written to local disks", local.Written, c.ShuffleWrite+c.Spilled)

	var all, nobody int64
	for _, kind := range []string{"persistent", "intermediate", "network"} {
		for _, flow := range []string{sort.ID, count.ID, sql.ID, "clients", "unattributed"} {
			p := saw(flow, kind)
			all += p.Read + p.Written
			if flow == "unattributed" {
				nobody += p.Read + p.Written
			}
			t.Logf("%-32s %-12s %8.2f MB read, %8.2f MB written", flow, kind, float64(p.Read)/1e6, float64(p.Written)/1e6)
		}
	}
	if nobody*100 > all {
		t.Errorf("%d of %d bytes are nobody's", nobody, all)
	}
	// What the disk did beside is its file system's journal.
	device := deviceBytes(after) - deviceBytes(before)
	t.Logf("all flows: %.2f MB of the device, its request log says %.2f MB", float64(device)/1e6, float64(logged)/1e6)
	if off := math.Abs(float64(device - logged)); off > 0.05*float64(logged) {
		t.Errorf("the flows have %d bytes of the device, the request log %d", device, logged)
	}
	if err := cluster.VerifyWordCount(ctx, "/words/output", text); err != nil {
		t.Error(err)
	}
	got, err := cluster.VerifyRows(ctx, "/tera/output", rows, false)
	if err != nil || got != want {
		t.Errorf("TeraSort's output: %v, %v, want %v", got, err, want)
	}
}

// history is what a job's application master writes of the job itself, which no counter
// has: its events and configuration, first beside the job and then where the history
// server looks for them, and a summary there.
func history(ctx context.Context, t *testing.T, app *hadoop.App) (bytes int64) {
	t.Helper()
	files, err := bed.cluster.FS().List(ctx, bed.cluster.HistoryDir())
	if err != nil {
		t.Fatal(err)
	}
	job, found := strings.Replace(app.ID, "application_", "job_", 1), 0
	for _, f := range files {
		switch name := path.Base(f.Path); {
		case !strings.HasPrefix(name, job):
		case strings.HasSuffix(name, ".summary"):
			bytes += f.Length
			found++
		default:
			bytes += 2 * f.Length
			found++
		}
	}
	if found != 3 {
		t.Fatalf("%d of 3 files of %s in the history", found, job)
	}
	return bytes
}

// deviceBytes is what the disk has moved for all flows.
func deviceBytes(doc *status.Document) (bytes int64) {
	for _, d := range doc.Devices {
		for _, f := range d.Flows {
			if d.Name != "network" {
				bytes += f.Bytes.Read + f.Bytes.Written
			}
		}
	}
	return bytes
}

// logBytes is what the disk has moved at all.
func logBytes(t *testing.T) (bytes int64) {
	t.Helper()
	records, err := judge.ReadLog(bed.disk)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.Op == disk.Read || r.Op == disk.Write {
			bytes += r.Length
		}
	}
	return bytes
}

// alike holds what Penstock saw against what the job counted: within 2 %, and what is
// less than a page in each file makes no difference.
func alike(t *testing.T, what string, saw, counted int64) {
	t.Helper()
	const slack = 64 << 10
	off := math.Abs(float64(saw - counted))
	t.Logf("%s: %d bytes, the job says %d (%+.2f %%)", what, saw, counted, 100*float64(saw-counted)/math.Max(1, float64(counted)))
	if off > 0.02*float64(counted) && off > slack {
		t.Errorf("%s: %d bytes, the job says %d", what, saw, counted)
	}
}
