package java

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/client"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
	"penstock/lab/spark"
)

// TestJava runs the same scenario on each Java and each Hadoop, on a cluster of its own. PENSTOCK_JAVA has the versions of
// Java, such as "8,11,17,21", and PENSTOCK_HADOOP those of Hadoop. Without them, the scenario runs on Java 8 and the default
// Hadoop. A Hadoop that does not run on a Java is left out.
func TestJava(t *testing.T) {
	for java := range strings.SplitSeq(cmp.Or(os.Getenv("PENSTOCK_JAVA"), "8"), ",") {
		version, err := strconv.Atoi(java)
		fixture.Must(t, err)
		for release := range strings.SplitSeq(cmp.Or(os.Getenv("PENSTOCK_HADOOP"), hadoop.DefaultVersion), ",") {
			if !hadoop.RunsOn(release, version) {
				t.Logf("Hadoop %s does not run on Java %d", release, version)
				continue
			}
			t.Run(fmt.Sprintf("java%d-hadoop%s", version, release), func(t *testing.T) { scenario(t, version, release) })
		}
	}
}

func scenario(t *testing.T, version int, release string) {
	c := start(t, version, release)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	runsOn(t, c.Hadoop.DataNodeURL(0), version)
	runsOn(t, c.Hadoop.NodeManagerURL(0), version)
	if a := c.agent(t); a.State != "woven" || !a.Connected || a.Mode != "enforce" {
		t.Fatalf("the agent in the DataNode is not at work: %+v", a)
	}
	c.jobs(ctx, t)
	c.spark(ctx, t)
	if c.service != nil {
		c.shuffleService(ctx, t, "on the class path")
		fixture.Must(t, c.Hadoop.RestartNodeManager(ctx, 0, func(cfg *hadoop.Config) {
			maps.Copy(cfg.Settings, c.service.Isolated())
			cfg.Jars = nil
		}))
		fixture.Must(t, c.AwaitAgents(ctx, 0, servers))
		c.shuffleService(ctx, t, "in a class loader of its own")
	}
	c.shares(ctx, t)
	c.killed(ctx, t)
	if c.byLoopback() {
		c.withoutPort(ctx, t)
	}
}

// jobs runs TeraGen and TeraSort at once. The agents of DataNode, NodeManager and tasks are connected, on a Java without
// Unix sockets by the loopback port, and the bytes of each job are attributed to it. The daemon
// believes no names here: it must find the processes of tasks and clients.
func (c *cluster) jobs(ctx context.Context, t *testing.T) {
	const sortRows, genRows = 1_000_000, 500_000
	sorted, err := c.Hadoop.WriteRows(ctx, "/sort/input", hadoop.Rows{Rows: sortRows})
	fixture.Must(t, err)
	fixture.Must(t, c.Forget())
	before := c.Settled(t)

	gen := c.Submit(ctx, t, hadoop.Job{Kind: hadoop.TeraGen, Rows: genRows, Output: "/gen", Queue: hadoop.QueueAggressor})
	sort := c.Submit(ctx, t, hadoop.Job{Kind: hadoop.TeraSort, Input: "/sort/input", Output: "/sort/output", Queue: hadoop.QueueProtected, Reduces: 2,
		Settings: map[string]string{"mapreduce.task.io.sort.mb": "16"}}) // so that the maps spill
	roles := c.run(ctx, t, gen, sort)
	for _, role := range []string{"datanode", "nodemanager", "task"} {
		if !roles[role] {
			t.Errorf("no agent with the role %s was connected as expected; seen: %v", role, roles)
		}
	}
	counted := map[*hadoop.App]map[string]int64{}
	for _, job := range []*hadoop.App{gen, sort} {
		counted[job], err = job.Counters(ctx)
		fixture.Must(t, err)
	}
	after := c.Settled(t)

	var all, nobody int64
	for _, kind := range []string{"persistent", "intermediate", "network"} {
		for _, flow := range []string{gen.ID, sort.ID, "clients", "unattributed"} {
			p := fixture.StreamedBetween(before, after, flow, kind)
			t.Logf("%-32s %-12s %8.2f MB read, %8.2f MB written", flow, kind, float64(p.Read)/1e6, float64(p.Written)/1e6)
			all += p.Read + p.Written
			if flow == "unattributed" {
				nobody += p.Read + p.Written
			}
		}
	}
	if nobody*200 > all {
		t.Errorf("%d of %d bytes are unattributed", nobody, all)
	}
	for job, rows := range map[*hadoop.App]int64{gen: genRows, sort: sortRows} {
		name := string(job.Job.Kind)
		written := fixture.StreamedBetween(before, after, job.ID, "persistent").Written
		tasks := counted[job]["HDFS: Number of bytes written"]
		// The application master writes each file of the history twice, which no counter includes.
		least, most := tasks-tasks/50, tasks+tasks/50+2*c.history(ctx, t, job)
		t.Logf("%s: written to HDFS: Penstock saw %d bytes, the counter has %d, with the history at most %d", name, written, tasks, most)
		if tasks < rows*hadoop.RowBytes || written < least || written > most {
			t.Errorf("%s: written to HDFS: Penstock saw %d bytes, want %d to %d", name, written, least, most)
		}
	}
	n := counted[sort]
	local := fixture.StreamedBetween(before, after, sort.ID, "intermediate")
	network := fixture.StreamedBetween(before, after, sort.ID, "network")
	const percent = 0.5 // measured: at most 0.33
	fixture.AlikeWithin(t, percent, "terasort: read from HDFS", fixture.StreamedBetween(before, after, sort.ID, "persistent").Read, n["HDFS: Number of bytes read"])
	fixture.AlikeWithin(t, percent, "terasort: read from local disks", local.Read, n["FILE: Number of bytes read"]+n["Reduce shuffle bytes"])
	fixture.AlikeWithin(t, percent, "terasort: written to local disks", local.Written, n["FILE: Number of bytes written"])
	fixture.AlikeWithin(t, percent, "terasort: shuffled", network.Read+network.Written, n["Reduce shuffle bytes"])

	if got, err := c.Hadoop.VerifyRows(ctx, "/sort/output", sortRows, false); err != nil || got != sorted {
		t.Errorf("TeraSort's output: %v, %v, want %v", got, err, sorted)
	}
	if _, err := c.Hadoop.VerifyRows(ctx, "/gen", genRows, true); err != nil {
		t.Errorf("TeraGen's output: %v", err)
	}
}

// spark runs a program twice on a standalone Spark, of the last release line for this Java. Its executors are one flow,
// whose bytes match Spark's own counts. They fetch from one another first, and then from the Worker's shuffle service.
func (c *cluster) spark(ctx context.Context, t *testing.T) {
	release := spark.Earlier
	if c.java >= 17 {
		release = spark.Version
	}
	home, err := spark.Fetch(ctx, c.Spec.Cache, release, t.Logf)
	fixture.Must(t, err)
	service, err := spark.NewService()
	fixture.Must(t, err)
	settings := service.Application()
	maps.Copy(settings, fewerWrites)
	s, err := spark.Start(ctx, spark.Config{RunDir: c.Path("spark"), Home: home, Java: c.home, Cluster: c.Hadoop, Standalone: true,
		LocalDir: sparkDir(c.Stand.Stand), Governed: c.Governed(0), Progress: t.Logf, Settings: settings})
	fixture.Must(t, err)
	defer func() { fixture.Check(t, s.Stop()) }()
	c.sortLines(ctx, t, "Spark's sort", s, spark.Job{Settings: map[string]string{"spark.shuffle.service.enabled": "false"}})
	roles := map[string]bool{}
	if c.connected(t, roles); !roles["worker"] {
		t.Errorf("the Worker's agent is not connected; the others: %v", roles)
	}
	c.sortLines(ctx, t, "Spark's sort with the Worker's shuffle service", s, spark.Job{})
}

// sortLines sorts lines with a Spark, whose bytes match its own counts.
func (c *cluster) sortLines(ctx context.Context, t *testing.T, name string, s *spark.Spark, job spark.Job) {
	c.lines++
	dir := fmt.Sprintf("/lines-%d", c.lines)
	text, err := c.Hadoop.WriteText(ctx, dir+"/input", hadoop.Text{Seed: 11, Files: 2, FileBytes: 16 * fixture.MiB})
	fixture.Must(t, err)
	fixture.Must(t, c.Forget())
	before := c.Settled(t)
	script, err := spark.Script(t.TempDir(), spark.Sort)
	fixture.Must(t, err)
	job.Name, job.Script = "sort", script
	job.Args = []string{c.Hadoop.DefaultFS() + dir + "/input", c.Hadoop.DefaultFS() + dir + "/output", "4"}
	sort, err := s.Submit(ctx, job)
	fixture.Must(t, err)
	fixture.Must(t, sort.Wait(ctx))
	fixture.AlikeSpark(t, name, before, c.Settled(t), s, sort)
	n, err := s.Counters(sort)
	fixture.Must(t, err)
	if n.ShuffleRemote == 0 {
		t.Errorf("%s: executors have fetched nothing from each other or from the service", name)
	}
	fixture.Ordered(t, c.Hadoop.FS(), dir+"/output")
	size, err := c.Hadoop.FS().Size(ctx, dir+"/output")
	fixture.Must(t, err)
	if size != text.Bytes {
		t.Errorf("%s: of %d bytes it has written %d", name, text.Bytes, size)
	}
}

// shuffleService runs the same program on YARN with Spark's external shuffle service. Half of the shuffle's bytes are read by
// the NodeManager, and they are the application's.
func (c *cluster) shuffleService(ctx context.Context, t *testing.T, where string) {
	home, err := spark.Fetch(ctx, c.Spec.Cache, spark.Earlier, t.Logf)
	fixture.Must(t, err)
	settings := c.service.Application()
	maps.Copy(settings, fewerWrites)
	s, err := spark.Start(ctx, spark.Config{RunDir: c.Path(fmt.Sprintf("spark-yarn-%d", c.lines)), Home: home, Java: c.home, Cluster: c.Hadoop, Governed: c.Governed(0), Progress: t.Logf, Settings: settings})
	fixture.Must(t, err)
	defer func() { fixture.Check(t, s.Stop()) }()
	c.sortLines(ctx, t, "Spark's sort with the shuffle service "+where, s, spark.Job{Queue: hadoop.QueueProtected})
}

// fewerWrites are settings of Spark. Without the first one, small shuffles are written twice and read once more than Spark counts. Without
// the last two, an executor that is ready first may do all the work.
var fewerWrites = map[string]string{"spark.shuffle.sort.bypassMergeThreshold": "1", "spark.executor.memory": "512m",
	"spark.scheduler.minRegisteredResourcesRatio": "1", "spark.scheduler.maxRegisteredResourcesWaitingTime": "5m"}

// history returns the size of the files that a job's application master has written about the job.
func (c *cluster) history(ctx context.Context, t *testing.T, job *hadoop.App) (bytes int64) {
	t.Helper()
	files, err := c.Hadoop.FS().List(ctx, c.Hadoop.HistoryDir())
	fixture.Must(t, err)
	for _, f := range files {
		if strings.HasPrefix(path.Base(f.Path), strings.Replace(job.ID, "application_", "job_", 1)) {
			bytes += f.Length
		}
	}
	return bytes
}

// shares lets two applications with weights of 3:1 read at once. These applications are invented,
// so the daemon starts again with settings that believe their names, and the agents must find its
// new port.
func (c *cluster) shares(ctx context.Context, t *testing.T) {
	const (
		strong, weak           = 1, 2
		strongBytes, weakBytes = 256 * fixture.MiB, 128 * fixture.MiB
		window                 = 10 * time.Second
	)
	fixture.Must(t, c.RestartNode(ctx, 0, func(o *daemon.Options) {
		o.More = strings.Replace(o.More, byDirectory(c.Stand.Stand), daemon.Believe, 1)
	}))
	fixture.Must(t, c.AwaitAgents(ctx, 0, servers))
	c.connected(t, map[string]bool{})
	c.Weights(t, fmt.Sprintf("default: 1\nrules:\n  - {application: %s, weight: 3}\n", client.Application(strong)))

	writers := []*transfer{c.transfer("put", strong, strongBytes), c.transfer("put", weak, weakBytes)}
	for _, w := range writers {
		w.finish(t)
	}
	c.Settled(t)
	fixture.Must(t, c.Forget())
	fixture.Must(t, c.SetModel(disk.HDD(disk.HDDRate)))
	flow := func(app int) string { return fmt.Sprintf("flow=%q", client.Application(app)) }
	reads := func(app int) float64 { return c.Metric(t, "flow_bytes_total", flow(app), `direction="read"`) }
	waits := func(app int) float64 { return c.Metric(t, "flow_waits_total", flow(app)) }
	began := map[int]float64{strong: waits(strong), weak: waits(weak)} // as writers
	readers := []*transfer{c.transfer("get", strong, strongBytes), c.transfer("get", weak, weakBytes)}
	fixture.Eventually(t, "both applications wait for the disk", func() bool {
		for _, r := range readers {
			r.running(t)
		}
		return reads(strong) > 4*fixture.MiB && reads(weak) > 4*fixture.MiB && waits(strong) >= began[strong]+3 && waits(weak) >= began[weak]+3
	})
	owners := map[string]int{}
	for _, app := range []int{strong, weak} {
		for _, b := range c.Blocks(t, file(app)) {
			owners[b] = app
		}
	}
	from := disk.Monotonic()
	<-time.After(window) // the span that is judged
	to := disk.Monotonic()
	for _, r := range readers {
		r.running(t)
	}
	fixture.Must(t, c.SetModel(disk.Model{}))
	for _, r := range readers {
		r.finish(t)
	}

	account := fixture.Judge(t, c.Disks[0], func(path string) string {
		if app := owners[hadoop.BlockName(path)]; app != 0 {
			return client.Application(app)
		}
		return ""
	}, judge.Window{From: from, To: to})[0]
	of := func(app int) float64 { return float64(account.Owners[client.Application(app)].ReadBytes) }
	ratio := of(strong) / of(weak)
	t.Logf("in %v the disk read %.1f and %.1f MB, %.2f:1", window, of(strong)/1e6, of(weak)/1e6, ratio)
	if !(ratio >= 2.7 && ratio <= 3.3) { // so that NaN fails
		t.Errorf("the applications with weights of 3:1 have shares of %.2f:1", ratio)
	}
	for _, app := range []int{strong, weak} {
		if n := c.Metric(t, "flow_forced_total", flow(app)); n > 0 {
			t.Errorf("application %d was let through %.0f times after the longest wait: its share did not come from its weight", app, n)
		}
	}
	if a := c.agent(t); !a.Connected || a.GateWaits == 0 || a.GateBackstops != 0 || a.FailedOpen != 0 {
		t.Errorf("the agent in the DataNode has held back no stream, or has let one through by itself: %+v", a)
	}
}

// killed kills the daemon with -9 while an application reads. The reader goes on, and the next daemon governs it again.
func (c *cluster) killed(ctx context.Context, t *testing.T) {
	const (
		app, size = 1, 256 * fixture.MiB // the file is that of the strong reader
		onTheWay  = 8 * fixture.MiB      // bytes that the reader may get without a daemon's or DataNode's work
		most      = 5 * time.Second      // the promise is a second; a busy machine takes longer
	)
	fixture.Must(t, c.Forget())
	fixture.Must(t, c.SetModel(disk.HDD(disk.HDDRate)))
	reader := c.transfer("get", app, size)
	reader.reaches(t, 4*fixture.MiB)
	at := reader.at.Load()
	begin := time.Now()
	fixture.Must(t, c.Nodes[0].Kill())
	reader.reaches(t, at+onTheWay)
	held := time.Since(begin) - time.Duration(onTheWay)*time.Second/disk.HDDRate
	t.Logf("the reader was held up for %v by a killed daemon", max(0, held))
	if held > most {
		t.Errorf("the reader was held up for %v by a killed daemon", held)
	}
	fixture.Must(t, c.StartNode(ctx, 0, nil))
	fixture.Must(t, c.AwaitAgents(ctx, 0, servers))
	fixture.Eventually(t, "the next daemon governs the reader", func() bool {
		return c.Metric(t, "flow_bytes_total", fmt.Sprintf("flow=%q", client.Application(app)), `direction="read"`) > 4*fixture.MiB
	})
	fixture.Must(t, c.SetModel(disk.Model{}))
	reader.finish(t)
}

// withoutPort starts the daemon without the loopback port, and then the DataNode. The DataNode is
// ungoverned and serves as without Penstock. It says so once, although it keeps looking for the
// port.
func (c *cluster) withoutPort(ctx context.Context, t *testing.T) {
	const app, size = 3, 8 * fixture.MiB
	fixture.Must(t, c.RestartNode(ctx, 0, func(o *daemon.Options) { o.More = strings.Replace(o.More, byLoopback, "", 1) }))
	c.Hadoop.StopDataNode(0)
	log := filepath.Join(c.Hadoop.LogDir(), "dn0.log")
	old, err := os.ReadFile(log)
	fixture.Must(t, err)
	fixture.Must(t, c.Hadoop.StartDataNode(ctx, 0))
	c.transfer("put", app, size).finish(t)
	c.transfer("get", app, size).finish(t)
	fixture.Eventually(t, "the agent has looked for the port several times", func() bool { return c.agent(t).ConnectionFailures >= 3 })

	if a := c.agent(t); a.State != "woven" || a.Connected || a.GateWaits != 0 {
		t.Errorf("the agent in the DataNode is connected, or has held back a stream: %+v", a)
	}
	doc := c.Look(t)
	for _, a := range doc.Agents {
		t.Errorf("an agent is connected although there is no port: %+v", a)
	}
	if f := fixture.FlowOfAny(doc, client.Application(app)); f.Requests != 0 {
		t.Errorf("an ungoverned application has a flow: %+v", f)
	}
	text, err := os.ReadFile(log)
	fixture.Must(t, err)
	var lines []string
	for line := range strings.Lines(string(text[len(old):])) {
		if strings.Contains(line, "not governed") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "set loopback to 127.0.0.1:0") {
		t.Errorf("the DataNode's log has %d lines on its missing connection, want one that says what to set: %q", len(lines), lines)
	}
}
