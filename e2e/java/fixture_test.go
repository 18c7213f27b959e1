package java

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/client"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/jre"
	"penstock/lab/spark"
	"penstock/lab/stand"
)

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	stand.Recover()
	os.Exit(m.Run())
}

// byLoopback is the setting for agents without Unix sockets.
const byLoopback = "loopback: 127.0.0.1:0\n"

// sparkDir is the folder where a standalone Spark keeps its executors' files.
func sparkDir(s *stand.Stand) string { return filepath.Join(s.Disks[0].Mount(), "spark") }

// byDirectory are the settings with which the daemon identifies Spark's executors.
func byDirectory(s *stand.Stand) string {
	return fmt.Sprintf("identity: {spark_dirs: [%s]}\n", spark.WorkDir(sparkDir(s)))
}

// settings are those of a disk of 12 MB/s, with a quantum so small that a window of some seconds
// holds many of them.
const settings = `  quantum: 256KiB
  ahead: 16
  backlog: 8MiB
  dirty: 16MiB
` + fixture.HDDTarget

// servers is the number of agents in servers: DataNode and NodeManager.
const servers = 2

// machines is the Java of the machine, which builds Penstock.
const machines = 17

// cluster is a cluster on one version of Java.
type cluster struct {
	fixture.Stand
	java    int            // version
	home    string         // of the Java runtime; empty: the machine's
	service *spark.Service // Spark's shuffle service; nil if this Java is too new for it
	lines   int            // inputs of lines written
}

// byLoopback reports whether the cluster's agents have no Unix sockets.
func (c *cluster) byLoopback() bool { return c.java < 16 }

func start(t *testing.T, version int, release string) *cluster {
	t.Helper()
	cache, err := filepath.Abs(filepath.Join("..", "..", ".cache"))
	fixture.Must(t, err)
	home := ""
	if version != machines {
		home, err = jre.Fetch(t.Context(), cache, version, t.Logf)
		fixture.Must(t, err)
	}
	c := &cluster{java: version, home: home}
	var jars []string
	var more map[string]string
	if version < 17 {
		service, err := spark.FetchService(t.Context(), cache, release != "3.3.6", t.Logf)
		fixture.Must(t, err)
		c.service, jars, more = &service, []string{service.Jars}, service.NodeManager()
	}
	up, err := stand.Up(t.Context(), stand.Spec{
		Name:   "java",
		Public: true, // as in e2e/phases
		Disks:  []disk.Options{{Name: "disk", Size: 4 << 30, Scheduler: "mq-deadline"}},
		Nodes: func(s *stand.Stand) []daemon.Options {
			return []daemon.Options{{Mode: "enforce", Device: settings, More: byLoopback + "network: {rate: 1000MiB}\n" + byDirectory(s)}}
		},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			return hadoop.Config{Version: release, Java: home, Jars: jars, Settings: more, DataNodes: s.DataNodes("dfs"), TaskSlots: 7, // as in e2e/phases

				LocalDirs: []string{filepath.Join(s.Disks[0].Mount(), "local")}, Governed: s.Governed(0)}
		},
		Clients: true, Agents: []int{servers}, Progress: t.Logf,
	})
	fixture.Must(t, err)
	t.Cleanup(func() {
		fixture.Check(t, up.Down())
		if t.Failed() {
			t.Logf("logs are kept in %s", up.Dir)
		} else {
			fixture.Check(t, os.RemoveAll(up.Dir))
		}
	})
	c.Stand = fixture.Stand{Stand: up}
	return c
}

// agent is the MBean of the agent in the DataNode.
type agent struct {
	State              string
	Connected          bool
	Mode               string
	GateWaits          int64
	GateBackstops      int64
	ConnectionFailures int64
	FailedOpen         int64
}

func (c *cluster) agent(t *testing.T) (a agent) {
	t.Helper()
	fixture.Bean(t, c.Hadoop.DataNodeURL(0), "penstock:type=Agent", &a)
	return a
}

// runsOn fails the test unless the server whose web address is base runs on the given Java.
func runsOn(t *testing.T, base string, version int) {
	t.Helper()
	var vm struct{ SpecVersion string }
	fixture.Bean(t, base, "java.lang:type=Runtime", &vm)
	if got := strings.TrimPrefix(vm.SpecVersion, "1."); got != strconv.Itoa(version) {
		t.Errorf("the server at %s runs on Java %s, not %d", base, got, version)
	}
}

// connected fails the test if an agent is connected in another way than its Java allows. It adds the roles of the
// others to the given set.
func (c *cluster) connected(t *testing.T, roles map[string]bool) {
	t.Helper()
	for _, a := range c.Look(t).Agents {
		if a.Loopback != c.byLoopback() {
			t.Errorf("the agent of process %d (%s) is connected by the loopback port: %v, on Java %d", a.PID, a.Role, a.Loopback, c.java)
		} else {
			roles[a.Role] = true
		}
	}
}

// run waits until all jobs have succeeded. Meanwhile it looks at the agents, and returns the roles
// of those that were connected.
func (c *cluster) run(ctx context.Context, t *testing.T, jobs ...*hadoop.App) map[string]bool {
	t.Helper()
	ended := make(chan error, len(jobs))
	for _, job := range jobs {
		go func() {
			_, err := job.Wait(ctx)
			ended <- err
		}()
	}
	roles := map[string]bool{}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for left := len(jobs); left > 0; {
		select {
		case err := <-ended:
			fixture.Must(t, err)
			left--
		case <-tick.C:
			c.connected(t, roles)
		}
	}
	return roles
}

// transfer is the operation of a client, which belongs to an application.
type transfer struct {
	what  string
	at    atomic.Int64 // bytes moved
	ended chan error   // receives nil when all bytes were right
}

// transfer starts to write ("put") or read ("get") the file of an application, which has the given
// number of bytes. The file is one block, so that the shares of readers contain no time between two
// blocks, in which a reader has no request.
func (c *cluster) transfer(operation string, app int, bytes int64) *transfer {
	x := &transfer{what: fmt.Sprintf("%s by application %d", operation, app), ended: make(chan error, 1)}
	want := client.Sum(int64(app), bytes)
	end := func(err error) {
		select {
		case x.ended <- err:
		default: // it has ended before its JVM
		}
	}
	c.Clients.Do(operation, fmt.Sprintf("path=%s attempt=%s bytes=%d seed=%d block=%d replication=1", file(app), client.Attempt(app), bytes, app, bytes),
		func(event, value string) {
			switch {
			case event == "progress":
				at, _ := strconv.ParseInt(value, 10, 64)
				x.at.Store(at)
			case event == "done" && value == want:
				end(nil)
			case event == "done" || event == "error":
				end(fmt.Errorf("%s: %s (the checksum should be %s)", x.what, value, want))
			}
		})
	return x
}

func file(app int) string { return fmt.Sprintf("/file-%d", app) }

// finish waits until the transfer has ended, and fails the test if it has failed.
func (x *transfer) finish(t *testing.T) {
	t.Helper()
	select {
	case err := <-x.ended:
		fixture.Must(t, err)
	case <-time.After(stand.Patience):
		t.Fatalf("%s has not ended after %v", x.what, stand.Patience)
	}
}

// reaches waits until the transfer has moved so many bytes.
func (x *transfer) reaches(t *testing.T, bytes int64) {
	t.Helper()
	fixture.Eventually(t, fmt.Sprintf("%s: %d bytes", x.what, bytes), func() bool {
		x.running(t)
		return x.at.Load() >= bytes
	})
}

// running fails the test if the transfer has ended.
func (x *transfer) running(t *testing.T) {
	t.Helper()
	select {
	case err := <-x.ended:
		t.Fatalf("%s has ended too early: %v", x.what, err)
	default:
	}
}
