package failure

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// daemon is `penstock node` as a process.
type daemon struct {
	cmd     *exec.Cmd
	exited  <-chan struct{}
	address string // of /metrics
	weights string // path of its weights file
}

// daemons counts those started, for their files' names.
var daemons int

var listening = regexp.MustCompile(`msg=ready .*listen=(\S+)`)

// settings: quanta, bounds and reference latencies for disks of the usual speed.
const settings = `socket: %s
listen: 127.0.0.1:0
mode: %s
weights: %s
device:
  quantum: 1MiB
  backlog: 4MiB
  dirty: 32MiB
  run: 4MiB
  depth:
    read: {fixed: 10ms, per_mib: 50ms}
    write: {fixed: 10ms, per_mib: 50ms}
`

// startDaemon starts a daemon that is ended with the test.
func startDaemon(t *testing.T, mode string) *daemon {
	t.Helper()
	daemons++
	base := filepath.Join(small.cluster.LogDir(), fmt.Sprintf("node%d", daemons))
	d := &daemon{weights: base + ".weights.yaml"}
	d.setWeights(t, "default: 1\n")
	if err := os.WriteFile(base+".yaml", fmt.Appendf(nil, settings, small.socket, mode, d.weights), 0o644); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	d.cmd = exec.Command(small.binary, "node", "--config", base+".yaml", "--log-level", "debug")
	d.cmd.Stderr = write
	d.exited, err = start(d.cmd)
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.stop(t) })
	ready := make(chan string, 1)
	go keepLog(read, base+".log", ready)
	select {
	case d.address = <-ready:
	case <-d.exited:
		t.Fatalf("the daemon ended: see %s.log", base)
	case <-time.After(patience):
		t.Fatalf("the daemon is not ready: see %s.log", base)
	}
	return d
}

// keepLog writes the daemon's log to a file and says when it is ready.
func keepLog(from io.ReadCloser, path string, ready chan<- string) {
	defer from.Close()
	file, err := os.Create(path)
	if err != nil {
		return
	}
	defer file.Close()
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		fmt.Fprintln(file, lines.Text())
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			ready <- m[1]
		}
	}
}

// startGoverning starts a daemon and waits until both DataNodes' agents are there.
func startGoverning(t *testing.T) *daemon {
	t.Helper()
	d := startDaemon(t, "enforce")
	d.awaitAgents(t, nodes)
	return d
}

func (d *daemon) setWeights(t *testing.T, text string) {
	t.Helper()
	// Renamed into place: the daemon must not read half a file.
	if err := os.WriteFile(d.weights+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(d.weights+".new", d.weights); err != nil {
		t.Fatal(err)
	}
}

func (d *daemon) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%v to the daemon: %v", s, err)
	}
}

// kill ends the daemon with -9.
func (d *daemon) kill(t *testing.T) {
	t.Helper()
	d.signal(t, syscall.SIGKILL)
	<-d.exited
}

func (d *daemon) alive() bool {
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

// stop ends the daemon as an operator does.
func (d *daemon) stop(t *testing.T) {
	if !d.alive() {
		return
	}
	d.cmd.Process.Signal(syscall.SIGCONT)
	d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.exited:
		if code := d.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the daemon ended with %d", code)
		}
	case <-time.After(patience):
		t.Errorf("the daemon does not end on SIGTERM")
		d.cmd.Process.Kill()
		<-d.exited
	}
}

// state is the process's state as /proc gives it: R, S, T, ...
func (d *daemon) state(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(raw), ") ")
	return after[:1]
}

var web = http.Client{Timeout: 10 * time.Second}

// fetch gets a page that must be there.
func fetch(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := web.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v: %s", url, resp.Status, err, raw)
	}
	return raw
}

// checkHealthy asks the daemon whether its loops turn.
func (d *daemon) checkHealthy(t *testing.T) {
	t.Helper()
	if !d.alive() {
		t.Fatal("the daemon has ended")
	}
	fetch(t, "http://"+d.address+"/-/healthy")
}

// metric is the sum of the metric's series that carry all the labels, such as
// flow="clients".
func (d *daemon) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	body := string(fetch(t, "http://"+d.address+"/metrics"))
	sum := 0.0
series:
	for line := range strings.SplitSeq(body, "\n") {
		rest, ok := strings.CutPrefix(line, "penstock_"+name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue series
			}
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			t.Fatalf("metric %q: %v", line, err)
		}
		sum += value
	}
	return sum
}

func (d *daemon) awaitMetric(t *testing.T, holds func(v float64) bool, name string, labels ...string) {
	t.Helper()
	last := 0.0
	eventually(t, "the right value of the metric", func() bool {
		last = d.metric(t, name, labels...)
		return holds(last)
	}, func() string { return fmt.Sprintf("penstock_%s %v is %v", name, labels, last) })
}

func (d *daemon) awaitAgents(t *testing.T, n int) {
	t.Helper()
	d.awaitMetric(t, is(n), "agent_connections")
}

func is(n int) func(float64) bool          { return func(v float64) bool { return v == float64(n) } }
func atLeast(n float64) func(float64) bool { return func(v float64) bool { return v >= n } }
func flow(a application) string            { return `flow="` + a.flow() + `"` }
func onDevice(i int) string                { return `device="` + filepath.Base(small.disks[i].Device()) + `"` }

const (
	reads  = `direction="read"`
	writes = `direction="write"`
)
