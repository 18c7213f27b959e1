package parallel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/e2e/internal/fixture"
	"penstock/lab/hadoop"
	"penstock/lab/storage"
)

const (
	rows    = 240_000 // of 100 bytes
	maps    = 4
	reduces = 2
)

const jarFile = "../../bin/penstock-sharedfs.jar"

// cluster is a YARN whose file system is shared:, on hosts of a parallel file system. The local directories of its NodeManagers
// are on the file system, too.
type cluster struct {
	*hadoop.Cluster
	machines *storage.Machines
	root     string // the folder that is shared:///
}

func start(t *testing.T, m *storage.Machines, layout string, change ...func(*hadoop.Config)) *cluster {
	t.Helper()
	jar, err := filepath.Abs(jarFile)
	fixture.Must(t, err)
	lib, err := hadoop.Fetch(t.Context(), cache, hadoop.DefaultVersion, t.Logf)
	fixture.Must(t, err)
	_, err = m.Network.Here()
	fixture.Must(t, err)
	root, names := filepath.Join(m.Mount, "hadoop"), filepath.Join(m.Dir, "hosts")
	m.Run(t, 0, "mkdir", root)
	cfg := hadoop.Config{RunDir: filepath.Join(m.Dir, "cluster"), Lib: lib, Jars: []string{jar}, NoHDFS: true, Masters: m.Hosts[0], Progress: t.Logf,
		Settings: map[string]string{
			"fs.defaultFS":                                           "shared:///",
			"fs.AbstractFileSystem.shared.impl":                      "penstock.sharedfs.SharedFs",
			"penstock.sharedfs.mount":                                root,
			"penstock.sharedfs.layout":                               layout,
			"penstock.sharedfs.gluster.shard":                        "0", // whole files
			"penstock.sharedfs.hosts":                                names,
			"penstock.sharedfs.tool.time":                            "1m",
			"penstock.sharedfs.shuffle.wait":                         "1m",
			"penstock.sharedfs.shuffle.dirs":                         filepath.Join(m.Mount, "local", "{host}"),
			"yarn.scheduler.capacity.node-locality-delay":            "40",
			"yarn.scheduler.capacity.rack-locality-additional-delay": "0", // as docs/operate/sharedfs.md says
			// An application master may lose its NodeManager, and that is noticed soon, but not if other tests keep the
			// machine busy for some seconds.
			"yarn.resourcemanager.am.max-attempts":               "3",
			"mapreduce.am.max-attempts":                          "3",
			"yarn.nm.liveness-monitor.expiry-interval-ms":        "20000",
			"mapreduce.reduce.shuffle.connect.timeout":           "5000",
			"mapreduce.reduce.shuffle.retry-delay.max.ms":        "2000",
			"mapreduce.job.reduce.shuffle.consumer.plugin.class": "org.apache.hadoop.mapreduce.task.reduce.Shuffle",
		}}
	var text string
	for _, h := range m.Hosts {
		local := filepath.Join(m.Mount, "local", h.IP())
		m.Run(t, 0, "mkdir", "-p", local) // NodeManagers that make the folder above at the same time may fail
		cfg.Nodes = append(cfg.Nodes, hadoop.Node{Machine: h, LocalDirs: []string{local}})
		text += fmt.Sprintf("%s %s\n", h.Name, h.IP())
	}
	fixture.Must(t, os.WriteFile(names, []byte(text), 0o644))
	for _, f := range change {
		f(&cfg)
	}
	c, err := hadoop.Start(t.Context(), cfg)
	fixture.Must(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &cluster{c, m, root}
}

// inPlace are the settings of a job that merges map outputs where they lie.
var inPlace = map[string]string{"mapreduce.job.reduce.shuffle.consumer.plugin.class": "penstock.sharedfs.shuffle.SharedShuffle"}

// submit submits a job.
func (c *cluster) submit(t *testing.T, job hadoop.Job) *hadoop.App {
	t.Helper()
	job.Queue = hadoop.QueueProtected
	app, err := c.Submit(t.Context(), job)
	fixture.Must(t, err)
	return app
}

// counters waits for the end of a job and returns its counters.
func counters(t *testing.T, app *hadoop.App) map[string]int64 {
	t.Helper()
	_, err := app.Wait(t.Context())
	fixture.Must(t, err)
	all, err := app.Counters(t.Context())
	fixture.Must(t, err)
	return all
}

// check reads the rows of a job's output on a host, and returns their checksum.
func (c *cluster) check(t *testing.T, host int, dir string, check hadoop.RowCheck) hadoop.Checksum128 {
	t.Helper()
	argv := c.machines.Hosts[host].Args("sh", "-c", "cat "+filepath.Join(c.root, dir, "part-*"))
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	fixture.Must(t, err)
	fixture.Must(t, cmd.Start())
	err = check.Read(out)
	out.Close()
	fixture.Check(t, cmd.Wait())
	fixture.Must(t, err)
	if check.Rows != rows {
		t.Errorf("%s has %d rows, want %d", dir, check.Rows, rows)
	}
	return check.Sum
}

// shuffled returns the bytes that NodeManagers have sent in shuffles.
func (c *cluster) shuffled(t *testing.T) (bytes int64) {
	t.Helper()
	for i := range c.machines.Hosts {
		if c.NodeManagerPID(i) == 0 {
			continue
		}
		var bean struct{ ShuffleOutputBytes int64 }
		fixture.Bean(t, c.NodeManagerURL(i), "Hadoop:service=NodeManager,name=ShuffleMetrics", &bean)
		bytes += bean.ShuffleOutputBytes
	}
	return bytes
}

// TestJobs: TeraGen and TeraSort run without HDFS, and maps run beside their data. Without the shuffle in place,
// NodeManagers send the map outputs; with it, they send nothing, and the reduces write no spills. The rows are the
// same. When a map and a reduce are killed during the shuffle, or a NodeManager during the merge, they are the same, too.
func TestJobs(t *testing.T) {
	each(t, func(t *testing.T, m *storage.Machines, fs fileSystem) {
		c := start(t, m, fs.layout)
		counters(t, c.submit(t, hadoop.Job{Kind: hadoop.TeraGen, Rows: rows, Maps: maps, Output: "/input"}))
		want := c.check(t, 1, "input", hadoop.RowCheck{InOrder: true})
		sort := hadoop.Job{Kind: hadoop.TeraSort, Input: "/input", Output: "/stock", Reduces: reduces}
		got := counters(t, c.submit(t, sort))
		local, all := got["Data-local map tasks"], got["Launched map tasks"]
		t.Logf("%d of %d maps were local", local, all)
		if all < maps || local == 0 {
			t.Errorf("%d of %d maps were local", local, all)
		}
		if sum := c.check(t, 1, "stock", hadoop.RowCheck{Sorted: true}); sum != want {
			t.Errorf("Hadoop's shuffle: the rows have the checksum %s, want %s", sum, want)
		}
		sent := c.shuffled(t)
		if sent < rows*hadoop.RowBytes {
			t.Errorf("NodeManagers sent %d bytes in Hadoop's shuffle", sent)
		}

		sort.Output, sort.Settings = "/in-place", inPlace
		got = counters(t, c.submit(t, sort))
		if now := c.shuffled(t); now != sent {
			t.Errorf("NodeManagers sent %d bytes although map outputs were to be read in place", now-sent)
		}
		if got["MAP_OUTPUTS_IN_PLACE"] != maps*reduces || got["BYTES_IN_PLACE"] < rows*hadoop.RowBytes || got["FALLBACKS"] != 0 || got["Reduce input records"] != rows ||
			got["Spilled Records"] != rows {
			t.Errorf("counters of the job in place: %v", got)
		}
		if sum := c.check(t, 2, "in-place", hadoop.RowCheck{Sorted: true}); sum != want {
			t.Errorf("in place: the rows have the checksum %s, want %s", sum, want)
		}

		t.Run("killed tasks", func(t *testing.T) {
			// The reduces start before the maps, and their shuffle waits for the map that is stopped here. So both die during the shuffle.
			early := hadoop.Job{Kind: hadoop.TeraSort, Input: "/input", Output: "/killed-tasks", Reduces: reduces,
				Settings: map[string]string{"mapreduce.job.reduce.slowstart.completedmaps": "0"}}
			for name, value := range inPlace {
				early.Settings[name] = value
			}
			app := c.submit(t, early)
			m := untilTask(t, app, "a map runs", func(k hadoop.Task) bool { return !k.Reduce() })
			fixture.Must(t, unix.Kill(m.PID, unix.SIGSTOP))
			r := untilTask(t, app, "a reduce shuffles", shuffles)
			t.Logf("killing %s and %s", m.Attempt, r.Attempt)
			for _, k := range []hadoop.Task{r, m} {
				fixture.Must(t, unix.Kill(k.PID, unix.SIGKILL))
			}
			got := counters(t, app)
			t.Logf("%d maps and %d reduces were launched, %d map outputs were merged in place, %d fallbacks", got["Launched map tasks"], got["Launched reduce tasks"],
				got["MAP_OUTPUTS_IN_PLACE"], got["FALLBACKS"])
			if got["Failed map tasks"] != 1 || got["Failed reduce tasks"] != 1 || got["Launched map tasks"] <= maps || got["Launched reduce tasks"] <= reduces {
				t.Errorf("the killed map and the killed reduce were to be the only tasks that failed, and to run again: %v", got)
			}
			// The second attempt of a reduce uses Hadoop's shuffle.
			if got["FALLBACKS"] < 1 || got["MAP_OUTPUTS_IN_PLACE"] != maps*(reduces-got["FALLBACKS"]) {
				t.Errorf("the first attempts were to merge in place, and no others: %v", got)
			}
			if sum := c.check(t, 1, "killed-tasks", hadoop.RowCheck{Sorted: true}); sum != want {
				t.Errorf("the rows have the checksum %s, want %s", sum, want)
			}
		})

		t.Run("killed NodeManager", func(t *testing.T) {
			sort.Output = "/killed"
			app := c.submit(t, sort)
			// The masters' host keeps its NodeManager; the application master may be on any of them.
			c.untilReduces(t, app)
			c.KillNodeManager(2)
			got := counters(t, app)
			t.Logf("%d of %d map outputs were merged in place, %d fallbacks, %d maps", got["MAP_OUTPUTS_IN_PLACE"], maps*reduces, got["FALLBACKS"], got["Launched map tasks"])
			if sum := c.check(t, 0, "killed", hadoop.RowCheck{Sorted: true}); sum != want {
				t.Errorf("the rows have the checksum %s, want %s", sum, want)
			}
		})
	})
}

// TestKilledBrick: a brick's server is killed while reduces read map outputs in place. The other replica serves them, and the rows are right.
func TestKilledBrick(t *testing.T) {
	m := storage.ForTest(t, cache, 2)
	g := m.Gluster(t, storage.GlusterOptions{Replicas: 2})
	c := start(t, m, "gluster")
	counters(t, c.submit(t, hadoop.Job{Kind: hadoop.TeraGen, Rows: rows, Maps: maps, Output: "/input"}))
	want := c.check(t, 1, "input", hadoop.RowCheck{InOrder: true})
	app := c.submit(t, hadoop.Job{Kind: hadoop.TeraSort, Input: "/input", Output: "/output", Reduces: reduces, Settings: inPlace})
	c.untilReduces(t, app)
	fixture.Must(t, g.KillBrick(t.Context(), 1))
	got := counters(t, app)
	t.Logf("%d of %d map outputs were merged in place, %d fallbacks", got["MAP_OUTPUTS_IN_PLACE"], maps*reduces, got["FALLBACKS"])
	for host := range m.Hosts {
		if sum := c.check(t, host, "output", hadoop.RowCheck{Sorted: true}); sum != want {
			t.Errorf("host %d: the rows have the checksum %s, want %s", host, sum, want)
		}
	}
}

// untilReduces waits until a job has finished more than half of its maps' part of the progress.
func (c *cluster) untilReduces(t *testing.T, app *hadoop.App) {
	t.Helper()
	fixture.EventuallyWithin(t, "the reduces begin", 5*time.Minute, func() bool {
		s, err := app.Status(t.Context())
		return err == nil && (s.Progress >= 50 || s.Ended())
	})
}

// untilTask waits for a task of a job, and returns it.
func untilTask(t *testing.T, app *hadoop.App, what string, is func(hadoop.Task) bool) (found hadoop.Task) {
	t.Helper()
	fixture.Eventually(t, what, func() bool {
		all, err := app.Tasks()
		fixture.Must(t, err)
		i := slices.IndexFunc(all, is)
		if i >= 0 {
			found = all[i]
		}
		return i >= 0
	})
	return found
}

// shuffles reports whether a task is a reduce that has started the shuffle in place.
func shuffles(k hadoop.Task) bool {
	text, err := os.ReadFile(filepath.Join(k.LogDir, "syslog"))
	return err == nil && k.Reduce() && strings.Contains(string(text), "Using ShuffleConsumerPlugin: penstock.")
}
