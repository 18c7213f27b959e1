package shares

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/lab/ledger"
	"penstock/lab/ports"
)

// settings of the daemon: those of the isolation experiment (lab/bench/isolation)
// but for the quantum. A window of 10 s holds some 55 quanta of 2 MiB, of which
// an application with a quarter gets 14: one quantum more or less at the
// window's ends is 7 % of its share, and no scheduler could keep a bound of 5 %
// in every window. With 512 KiB it is below 2 %, but for the requests of several
// quanta that are in flight then. As much is staged ahead of a reader as a writer
// may have in its backlog, so that clients that wait for a CPU leave neither
// flow's queue empty. Tests that need another device section have the daemon
// restarted with it (retune).
const settings = `
socket: %s
listen: %s
mode: enforce
identity: {mode: trust} # the clients are made up
weights: %s
device:
  profile: %q
  algorithm: sfqd2
  quantum: %s
  ahead: 16
  backlog: 8MiB
  dirty: %s
  max_flows: 8192
  depth:
    min: 1
    max: 12
    start: 2
    gain: 0.5
    read: %s
    write: %s
`

// tuning is what differs between tests in the device section.
type tuning struct{ profile, quantum, dirty, read, write string }

var usual = tuning{quantum: "512KiB", dirty: "16MiB", read: "{fixed: 20ms, per_mib: 180ms}", write: "{fixed: 20ms, per_mib: 180ms}"}

// node is a running `penstock node`.
type node struct {
	cmd     *exec.Cmd
	exited  chan struct{}
	book    *ledger.Ledger
	entry   ledger.ID
	weights string
	log     string
	url     string
	http    *http.Client
}

func startNode(ctx context.Context, book *ledger.Ledger, dir, binary, socket string, device tuning) (*node, error) {
	address, err := ports.Address()
	if err != nil {
		return nil, err
	}
	n := &node{book: book, exited: make(chan struct{}), weights: filepath.Join(dir, "weights.yaml"),
		log: filepath.Join(dir, "node.log"), url: "http://" + address, http: &http.Client{Timeout: 5 * time.Second}}
	if err := os.WriteFile(n.weights, []byte("default: 1\n"), 0o644); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "node.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, settings, socket, address, n.weights, device.profile, device.quantum, device.dirty, device.read, device.write), 0o644); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(n.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	n.cmd = exec.Command(binary, "node", "--config", config)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if n.entry, err = book.StartProcess(n.cmd); err != nil {
		return nil, fmt.Errorf("start penstock node: %w", err)
	}
	go func() {
		n.cmd.Wait()
		close(n.exited)
	}()
	return n, n.await(ctx, "ready", func(metrics) error { return nil })
}

// check is nil while the daemon lives.
func (n *node) check() error {
	select {
	case <-n.exited:
		text, _ := os.ReadFile(n.log)
		return fmt.Errorf("penstock node has ended: %s", text[max(0, len(text)-2000):])
	default:
		return nil
	}
}

func (n *node) stop() error {
	err := n.check()
	if err == nil {
		n.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-n.exited:
		case <-time.After(10 * time.Second):
			n.cmd.Process.Kill()
			<-n.exited
			err = errors.New("penstock node did not end within 10s of SIGTERM")
		}
	}
	return errors.Join(err, n.book.Undo(n.entry))
}

// await asks for the metrics until they are as wanted.
func (n *node) await(ctx context.Context, what string, wanted func(metrics) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		m, err := n.scrape(ctx)
		if err == nil {
			err = wanted(m)
		}
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-n.exited:
			return n.check()
		case <-ctx.Done():
			return fmt.Errorf("penstock node is not %s after a minute: %w", what, err)
		}
	}
}

// weigh puts weights in force.
func (n *node) weigh(t *testing.T, weights map[string]int) {
	t.Helper()
	var rules []string
	for application, weight := range weights {
		rules = append(rules, fmt.Sprintf("{application: %s, weight: %d}", application, weight))
	}
	n.rule(t, rules...)
}

// rule replaces the weights file, as an editor does, and waits until its rules are in force.
func (n *node) rule(t *testing.T, rules ...string) {
	t.Helper()
	taken := func(m metrics) float64 { return m[`penstock_weights_reloads_total{result="taken"}`] }
	before, err := n.scrape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := "default: 1\nrules:\n"
	for _, rule := range rules {
		text += "  - " + rule + "\n"
	}
	if err := errors.Join(os.WriteFile(n.weights+".new", []byte(text), 0o644), os.Rename(n.weights+".new", n.weights)); err != nil {
		t.Fatal(err)
	}
	err = n.await(t.Context(), "using the new weights", func(m metrics) error {
		if taken(m) == taken(before) {
			return errors.New("the file was not reloaded")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// metrics are the samples of one scrape, by name and labels as they are
// written.
type metrics map[string]float64

func (n *node) scrape(ctx context.Context) (metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := n.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/metrics: %s", resp.Status)
	}
	m := metrics{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, ok := cutLast(lines.Text())
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		m[name] = v
	}
	return m, lines.Err()
}

func cutLast(line string) (before, after string, ok bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 {
		return line, "", false
	}
	return line[:i], line[i+1:], true
}

// flow sums a metric of one flow over devices and directions.
func (m metrics) flow(name, flow string) float64 {
	return m.sum("penstock_flow_"+name+"{", fmt.Sprintf("flow=%q", flow))
}

// sum adds up the samples whose names begin and contain as given.
func (m metrics) sum(prefix string, labels ...string) (sum float64) {
samples:
	for name, v := range m {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(name, l) {
				continue samples
			}
		}
		sum += v
	}
	return sum
}
