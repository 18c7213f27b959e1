package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/lab/ledger"
	"penstock/node/monitor/connections"
)

// The machine that the monitor's cost is measured on: as many YARN containers, with a process each in
// a cgroup of its own, and as many connections to one DataNode port.
const (
	busyContainers  = 200
	busyConnections = 2000
)

const blkioHierarchy = "/sys/fs/cgroup/blkio"

// runContainers starts processes that wait, each in a cgroup of a container. They end with the test.
func runContainers(t testing.TB, n int) {
	t.Helper()
	l, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	make1 := func(path string) {
		_, err := l.Cgroup(path)
		if err := errors.Join(err, os.Mkdir(path, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	top := filepath.Join(blkioHierarchy, fmt.Sprintf("penstock-test-%d", os.Getpid()))
	yarn := filepath.Join(top, "hadoop-yarn")
	make1(top)
	make1(yarn)
	for i := range n {
		dir := filepath.Join(yarn, fmt.Sprintf("container_1700000000000_%04d_01_%06d", 1+i/10, 1+i%10))
		make1(dir)
		cmd := exec.Command("sleep", "3600")
		exited, err := l.Spawn(cmd)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); <-exited })
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// connectMany makes established connections to a port, of which the watch learns by streams.
func connectMany(t testing.TB, w *connections.Watch, n int) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	agent := w.NewAgent(1)
	for i := range n {
		c, err := net.Dial("tcp4", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		s, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		agent.Opened(s.LocalAddr().String(), s.RemoteAddr().String(), fmt.Sprintf("application_1700000000000_%04d", i%20), "/data/blk_1", false)
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMonitor measures the CPU time of the daemon's looks at a busy machine, and what part of a CPU
// they take at the daemon's own periods. Processes and connections are real, and idle: their figures
// cost the same to read while they work.
func BenchmarkMonitor(b *testing.B) {
	runContainers(b, busyContainers)
	processes := newProcessWatch("hadoop-yarn")
	if processes.Watch == nil {
		b.Fatal(processes.mistake)
	}
	defer processes.Close()
	following := &connectionWatch{Watch: connections.New()}
	connectMany(b, following.Watch, busyConnections)
	users := newUsers(slog.New(slog.DiscardHandler))
	watch, err := users.open()
	if err != nil {
		b.Fatal(err)
	}
	defer watch.Close()
	parts := []struct {
		name   string
		period time.Duration // 0: lookPeriod's
		look   func()
		total  time.Duration
	}{
		{name: "processes", look: func() {
			if err := processes.Look(time.Now(), nil); err != nil {
				b.Fatal(err)
			}
		}},
		{name: "connections", period: connectionsPeriod, look: func() { following.look(time.Now()) }},
		{name: "devices", period: samplePeriod, look: func() { users.sample(watch, []string{"sda", "sdb", "network"}) }},
	}
	for range 3 { // the first looks read each process's cgroup
		for _, p := range parts {
			p.look()
		}
	}
	looks := 0
	for b.Loop() {
		for i := range parts {
			before := cpuTime(b)
			parts[i].look()
			parts[i].total += cpuTime(b) - before
		}
		looks++
	}
	sum := 0.0
	for _, p := range parts {
		mean := p.total.Seconds() / float64(looks)
		b.ReportMetric(1e3*mean, p.name+"-cpu-ms")
		if p.period == 0 {
			p.period = lookPeriod(time.Duration(1e9 * mean))
		}
		sum += mean / p.period.Seconds()
	}
	b.ReportMetric(100*sum, "%cpu")
	if s := processes.Snapshot(busyContainers + 100); len(s.Sums) < busyContainers {
		b.Errorf("%d groups of processes, want %d containers", len(s.Sums), busyContainers)
	}
	if n := following.Snapshot(1).Established; n != busyConnections {
		b.Errorf("%d connections, want %d", n, busyConnections)
	}
}
