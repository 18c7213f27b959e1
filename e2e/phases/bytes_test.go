package phases

import (
	"context"
	"fmt"
	"math"
	"path"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/client"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
	"penstock/lab/spark"
	"penstock/lab/tpch"
	"penstock/node/status"
)

// TestEveryByteHasItsOwner: a TeraSort, a WordCount, Spark SQL and a sort in Spark run together,
// beside a shell that has read a file and is idle. Penstock's counts for each of them match the
// applications' own counters.
func TestEveryByteHasItsOwner(t *testing.T) {
	const rows = 1_000_000
	ctx := shared.Begin(t, 8*time.Minute)
	cluster := shared.Hadoop
	for _, path := range []string{"/tera", "/words", "/tpch", "/lines", "/shell"} {
		shared.Remove(t, path)
	}
	want, err := cluster.WriteRows(ctx, "/tera/input", hadoop.Rows{Rows: rows})
	fixture.Must(t, err)
	text, err := cluster.WriteText(ctx, "/words/input", hadoop.Text{Seed: 7, Files: 2, FileBytes: 48 * fixture.MiB})
	fixture.Must(t, err)
	if _, err := cluster.WriteText(ctx, "/lines/input", hadoop.Text{Seed: 11, Files: 2, FileBytes: 24 * fixture.MiB}); err != nil {
		t.Fatal(err)
	}
	generator, err := tpch.Fetch(ctx, shared.Spec.Cache)
	fixture.Must(t, err)
	fixture.Must(t, tpch.Load(ctx, cluster.FS(), generator, shared.Dir, "/tpch", 0.2, 4))
	s := newSpark(ctx, t, false, map[string]string{
		"spark.sql.autoBroadcastJoinThreshold": "-1", // every join shuffles
		"spark.sql.shuffle.partitions":         "8",
		// Otherwise small shuffles are written twice and read once more than Spark counts.
		"spark.shuffle.sort.bypassMergeThreshold": "1",
		// Otherwise the files' indexes are read as streams. A DataNode reads and sends more of such
		// a stream than its client takes. These bytes are I/O, but Spark does not count them.
		"spark.sql.parquet.filterPushdown": "false",
	})
	fresh := shared.Settled(t)
	shell := newShell(ctx, t, "/shell/file", 8*fixture.MiB)
	fixture.Must(t, shared.Forget())
	before, logged := shared.Settled(t), logBytes(t)
	fixture.Alike(t, "the shell: written to HDFS", fixture.StreamedBetween(fresh, before, "clients", "persistent").Written, shell.bytes)
	shell.read(ctx, t)
	fixture.Alike(t, "the shell: read from HDFS", fixture.StreamedBetween(before, shared.Settled(t), "clients", "persistent").Read, shell.bytes)

	sort := shared.Submit(ctx, t, hadoop.Job{Kind: hadoop.TeraSort, Input: "/tera/input", Output: "/tera/output", Queue: hadoop.QueueAggressor, Reduces: 2,
		Settings: map[string]string{"mapreduce.task.io.sort.mb": "16"}})
	staged := uploaded(ctx, t, sort.ID)
	count := shared.Submit(ctx, t, hadoop.Job{Kind: hadoop.WordCount, Input: "/words/input", Output: "/words/output", Queue: hadoop.QueueProtected})
	staged += uploaded(ctx, t, count.ID)
	sql, err := s.Submit(ctx, spark.Job{Name: "tpch", Script: script(t, spark.TPCH), Queue: hadoop.QueueProtected,
		Args: []string{cluster.DefaultFS() + "/tpch", "q9", "q21"}})
	fixture.Must(t, err)
	staged += uploaded(ctx, t, sql.ID)
	lines, err := s.Submit(ctx, spark.Job{Name: "sort", Script: script(t, spark.Sort), Queue: hadoop.QueueAggressor,
		Args: []string{cluster.DefaultFS() + "/lines/input", cluster.DefaultFS() + "/lines/output", "4"}})
	fixture.Must(t, err)
	staged += uploaded(ctx, t, lines.ID)
	for _, app := range []*hadoop.App{sort, count} {
		if _, err := app.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, app := range []*spark.App{sql, lines} {
		fixture.Must(t, app.Wait(ctx))
	}
	after := shared.Settled(t)
	logged = logBytes(t) - logged
	shell.end(ctx, t)

	saw := func(flow, kind string) status.Pair { return fixture.StreamedBetween(before, after, flow, kind) }
	for _, app := range []*hadoop.App{sort, count} {
		c, err := app.Counters(ctx)
		fixture.Must(t, err)
		name := string(app.Job.Kind)
		hdfs, local, network := saw(app.ID, "persistent"), saw(app.ID, "intermediate"), saw(app.ID, "network")
		fixture.Alike(t, name+": read from HDFS", hdfs.Read, c["HDFS: Number of bytes read"])
		tasks, files := c["HDFS: Number of bytes written"], history(ctx, t, app)
		t.Logf("%s: its counter has %d bytes written to HDFS; its history's events have %d, its configuration %d, both twice, its summary %d",
			name, tasks, files.events, files.configuration, files.summary)
		most, counted := tasks+files.all(), files.with(tasks, hdfs.Written)
		staged += most - counted
		fixture.Alike(t, name+": written to HDFS, with its history", hdfs.Written, counted)
		// The NodeManager's reads of map outputs are charged to the maps' application.
		fixture.Alike(t, name+": read from local disks", local.Read, c["FILE: Number of bytes read"]+c["Reduce shuffle bytes"])
		fixture.Alike(t, name+": written to local disks", local.Written, c["FILE: Number of bytes written"])
		fixture.Alike(t, name+": shuffled", network.Read+network.Written, c["Reduce shuffle bytes"])
	}
	for name, app := range map[string]*spark.App{"Spark SQL": sql, "Spark's sort": lines} {
		fixture.AlikeSpark(t, name, before, after, s, app)
		if app != lines {
			continue
		}
		size, err := cluster.FS().Size(ctx, "/lines/output")
		fixture.Must(t, err)
		fixture.Alike(t, name+": written to HDFS, by its output's size", saw(app.ID, "persistent").Written, size)
	}

	// If a job's account lacks a copy of its history, the copy must be in this account.
	fixture.Alike(t, "clients: written to HDFS, for the jobs' submission", saw("clients", "persistent").Written, staged)

	var all, nobody int64
	for _, kind := range []string{"persistent", "intermediate", "network"} {
		for _, flow := range []string{sort.ID, count.ID, sql.ID, lines.ID, "clients", "unattributed"} {
			p := saw(flow, kind)
			all += p.Read + p.Written
			if flow == "unattributed" {
				nobody += p.Read + p.Written
			}
			t.Logf("%-32s %-12s %8.2f MB read, %8.2f MB written", flow, kind, float64(p.Read)/1e6, float64(p.Written)/1e6)
		}
	}
	if nobody*100 > all {
		t.Errorf("%d of %d bytes are unattributed", nobody, all)
	}
	// The disk's other I/O is the file system's journal, the output of containers, and the files
	// that the NodeManager fetches for them.
	device, others := deviceBytes(after)-deviceBytes(before), foreigners(t, before, after)
	t.Logf("all flows: %.2f MB of the device, others %.2f, its request log says %.2f MB", float64(device)/1e6, float64(others)/1e6, float64(logged)/1e6)
	if off := math.Abs(float64(device + others - logged)); off > 0.05*float64(logged) {
		t.Errorf("the flows have %d bytes of the device and others by name %d, the request log %d", device, others, logged)
	}
	fixture.Check(t, cluster.VerifyWordCount(ctx, "/words/output", text))
	got, err := cluster.VerifyRows(ctx, "/tera/output", rows, false)
	if err != nil || got != want {
		t.Errorf("TeraSort's output: %v, %v, want %v", got, err, want)
	}
	fixture.Ordered(t, cluster.FS(), "/lines/output")
}

// shell is an HDFS client in its own process, outside of every container.
type shell struct {
	path  string
	bytes int64

	jvm    *client.JVM
	id     int         // of its read
	events chan string // other events than progress, as "event value"
}

// newShell starts a shell and makes it write a file of the given size.
func newShell(ctx context.Context, t *testing.T, path string, bytes int64) *shell {
	t.Helper()
	s := &shell{path: path, bytes: bytes, jvm: newClient(t), events: make(chan string, 8)}
	s.jvm.Do("put", fmt.Sprintf("path=%s seed=1 bytes=%d block=%d", path, bytes, shared.Hadoop.BlockSize()), s.take)
	s.await(ctx, t, "done "+client.Sum(1, bytes))
	return s
}

func (s *shell) take(event, value string) {
	if event == "progress" {
		return
	}
	select {
	case s.events <- event + " " + value:
	default: // nobody listens any more
	}
}

func (s *shell) await(ctx context.Context, t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-s.events:
		if got != want {
			t.Fatalf("the shell says %q, want %q", got, want)
		}
	case <-ctx.Done():
		t.Fatalf("the shell does not say %q: %v", want, ctx.Err())
	}
}

// read makes the shell read the file. The shell then keeps the file open and does nothing.
func (s *shell) read(ctx context.Context, t *testing.T) {
	t.Helper()
	// The limit is before the end that the client expects, so it stops there.
	s.id = s.jvm.Do("get", fmt.Sprintf("path=%s seed=1 bytes=%d limit=%d", s.path, s.bytes+1, s.bytes), s.take)
	s.await(ctx, t, fmt.Sprintf("reached %d", s.bytes))
}

// end closes the file, which the shell must still have open.
func (s *shell) end(ctx context.Context, t *testing.T) {
	t.Helper()
	s.jvm.Limit(s.id, -1)
	s.await(ctx, t, "done "+client.Sum(1, s.bytes))
}

// jobHistory has the sizes, in bytes, of the files that a job's application master writes about the
// job, which no counter includes: its events and configuration, first beside the job and then in
// the folder of the history server, and a summary there.
type jobHistory struct{ events, configuration, summary int64 }

func (h jobHistory) all() int64 { return 2*h.events + 2*h.configuration + h.summary }

// with returns how many bytes a job and its history have written to HDFS. A stream to the history
// lasts milliseconds. If it ends before the daemon could find out its process, it is not charged to
// the application. So one copy of the configuration, or the second copy of the events, may be
// missing. with returns the one of these three sums that is nearest to saw.
func (h jobHistory) with(tasks, saw int64) (nearest int64) {
	all := tasks + h.all()
	nearest = all
	for _, sum := range []int64{all - h.events, all - h.configuration} {
		if math.Abs(float64(saw-sum)) < math.Abs(float64(saw-nearest)) {
			nearest = sum
		}
	}
	return nearest
}

func history(ctx context.Context, t *testing.T, app *hadoop.App) (h jobHistory) {
	t.Helper()
	files, err := shared.Hadoop.FS().List(ctx, shared.Hadoop.HistoryDir())
	fixture.Must(t, err)
	job, found := strings.Replace(app.ID, "application_", "job_", 1), 0
	for _, f := range files {
		name := path.Base(f.Path)
		if !strings.HasPrefix(name, job) {
			continue
		}
		for end, length := range map[string]*int64{".jhist": &h.events, "_conf.xml": &h.configuration, ".summary": &h.summary} {
			if strings.HasSuffix(name, end) {
				*length = f.Length
				found++
			}
		}
	}
	if found != 3 {
		t.Fatalf("%d of 3 files of %s in the history", found, job)
	}
	return h
}

// uploaded returns how many bytes the client of a just submitted job has put into HDFS for it. The
// job's history, which the application master writes to the same folder later, does not count.
func uploaded(ctx context.Context, t *testing.T, id string) (bytes int64) {
	t.Helper()
	user, job := path.Base(shared.Hadoop.HistoryDir()), strings.Replace(id, "application_", "job_", 1)
	for _, dir := range []string{path.Join("/staging", user, ".staging", job), path.Join("/user", user, ".sparkStaging", id)} {
		files, err := shared.Hadoop.FS().List(ctx, dir)
		if err != nil {
			continue // only one of the two folders exists
		}
		for _, f := range files {
			if !strings.HasPrefix(path.Base(f.Path), "job_") {
				bytes += f.Length
			}
		}
	}
	if bytes == 0 {
		t.Fatalf("nothing was uploaded for %s", id)
	}
	return bytes
}

// deviceBytes returns how many bytes the disk has moved for all flows.
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

// foreigners returns the bytes that other processes than the daemon moved on the disk between two
// status documents, according to the kernel. Only processes in the later document count. The
// kernel's own writeback is left out, because most of it is data of flows, and is charged to them.
func foreigners(t *testing.T, from, to *status.Document) (bytes int64) {
	t.Helper()
	type who struct {
		name, cgroup string
		pid          uint32
	}
	had := map[who]int64{}
	for _, d := range from.Devices {
		for _, u := range d.ForeignUsers.Top {
			had[who{u.Name, u.Cgroup, u.PID}] = u.Bytes.Read + u.Bytes.Written
		}
	}
	for _, d := range to.Devices {
		for _, u := range d.ForeignUsers.Top {
			n := u.Bytes.Read + u.Bytes.Written - had[who{u.Name, u.Cgroup, u.PID}]
			t.Logf("beside the daemon: %-20s %8.2f MB", u.Name, float64(n)/1e6)
			if u.Name != "kworker" {
				bytes += n
			}
		}
		t.Logf("%d others are left off, %d bytes are of nobody in particular", d.ForeignUsers.LeftOff, d.ForeignUsers.UnlistedBytes)
	}
	return bytes
}

// logBytes returns how many bytes the disk has moved in total.
func logBytes(t *testing.T) (bytes int64) {
	t.Helper()
	records, err := judge.ReadLog(shared.Disks[0])
	fixture.Must(t, err)
	for _, r := range records {
		if r.Op == disk.Read || r.Op == disk.Write {
			bytes += r.Length
		}
	}
	return bytes
}
