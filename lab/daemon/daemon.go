// Package daemon runs `penstock node` or `penstock broker` as a process, and does to it what failure
// tests need: it kills it, stops it, breaks its weights, and sends garbage to its socket.
//
// The daemon is the binary that users run. It is configured as users do, by two files, and observed as
// users do, by its metrics and its status. It is in the run's ledger, so it ends with the run, however
// the run ends.
package daemon

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"penstock/lab/ledger"
	"penstock/lab/proc"
)

// Options of a daemon.
type Options struct {
	Book   *ledger.Ledger // of the run that it belongs to
	Binary string         // penstock
	Base   string         // path that its files' names begin with: BASE.yaml, .weights.yaml, .log
	Socket string         // for agents
	Listen string         // address of its metrics; default a free port of 127.0.0.1
	Mode   string         // off, observe or enforce
	Device string         // the settings' device section, YAML, indented by two spaces; may be ""
	More   string         // further settings, YAML; may be ""
	// Weights is the weights file's first text; default every weight 1.
	Weights  string
	LogLevel string // default debug
	// Peer says that Device names a scheduler to compare with (lab/schedulers).
	Peer bool
	// Broker, if not nil, are the arguments of `penstock broker`, which is then run instead: it
	// has neither settings nor weights.
	Broker []string
	// By is the command that starts it, such as `ip netns exec NAME`; nil: it is started as
	// it is.
	By []string
	// Patience bounds the wait for it to be ready, and to end on SIGTERM.
	Patience time.Duration
}

// Believe is the section for tests that make up their clients' applications: in no
// container, such a client would be unattributed.
const Believe = "identity: {mode: trust}\n"

// Daemon is a running `penstock node`. Its methods are for one goroutine, but
// for Get and Metric.
type Daemon struct {
	Address string // of its metrics listener
	Weights string // path of the weights file
	Log     string // path

	options Options
	cmd     *exec.Cmd
	exited  <-chan struct{}
}

var listening = regexp.MustCompile(`msg=ready .*listen=(\S+)`)

// Settings is the text of the settings file.
func (o Options) Settings() string {
	text := fmt.Sprintf("socket: %s\nlisten: %s\nmode: %s\nweights: %s\n", o.Socket, cmp.Or(o.Listen, "127.0.0.1:0"), o.Mode, o.weightsFile())
	if o.Device != "" {
		text += "device:\n" + o.Device
	}
	return text + o.More
}

func (o Options) weightsFile() string { return o.Base + ".weights.yaml" }

// Start starts a daemon and returns when it is ready.
func Start(ctx context.Context, o Options) (*Daemon, error) {
	d := &Daemon{options: o, Weights: o.weightsFile(), Log: o.Base + ".log"}
	if o.Weights == "" {
		o.Weights = "default: 1\n"
	}
	if o.LogLevel == "" {
		o.LogLevel = "debug"
	}
	args := append([]string{"broker"}, o.Broker...)
	if o.Broker == nil {
		args = []string{"node", "--config", o.Base + ".yaml"}
		if o.Peer {
			o.Binary = filepath.Join(filepath.Dir(o.Binary), "penstock-lab") // it lies beside penstock
		}
		if err := d.SetWeights(o.Weights); err != nil {
			return nil, err
		}
		if err := os.WriteFile(o.Base+".yaml", []byte(o.Settings()), 0o644); err != nil {
			return nil, err
		}
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	command := slices.Concat(o.By, []string{o.Binary}, args, []string{"--log-level", o.LogLevel})
	d.cmd = exec.Command(command[0], command[1:]...)
	d.cmd.Stderr = write
	d.exited, err = o.Book.Spawn(d.cmd)
	write.Close()
	if err != nil {
		return nil, errors.Join(err, read.Close())
	}
	ready := make(chan string, 1)
	go d.keepLog(read, ready)
	select {
	case d.Address = <-ready:
		return d, nil
	case <-d.exited:
		return nil, fmt.Errorf("penstock %s ended: see %s", args[0], d.Log)
	case <-time.After(o.Patience):
		err = fmt.Errorf("penstock %s is not ready after %v: see %s", args[0], o.Patience, d.Log)
	case <-ctx.Done():
		err = ctx.Err()
	}
	d.cmd.Process.Kill()
	<-d.exited
	return nil, err
}

// keepLog writes the daemon's log to a file and says when it is ready.
func (d *Daemon) keepLog(from io.ReadCloser, ready chan<- string) {
	defer from.Close()
	file, err := os.Create(d.Log)
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

// SetWeights replaces the weights file as an editor does, by a rename, so that
// the daemon never reads half of it.
func (d *Daemon) SetWeights(text string) error {
	if err := os.WriteFile(d.Weights+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(d.Weights+".new", d.Weights)
}

// PID is the process's id.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Signal sends a signal to it.
func (d *Daemon) Signal(s syscall.Signal) error {
	if err := d.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("%v to penstock node: %w", s, err)
	}
	return nil
}

// Kill ends it with SIGKILL and returns when it has gone.
func (d *Daemon) Kill() error {
	if err := d.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-d.exited
	return nil
}

// Alive reports whether it has not ended.
func (d *Daemon) Alive() bool {
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

// Exited is closed when it has ended.
func (d *Daemon) Exited() <-chan struct{} { return d.exited }

// Stop ends it as an operator does. One that has ended already is left alone.
func (d *Daemon) Stop() error {
	if !d.Alive() {
		return nil
	}
	d.cmd.Process.Signal(syscall.SIGCONT)
	d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.exited:
		if code := d.cmd.ProcessState.ExitCode(); code != 0 {
			return fmt.Errorf("penstock node ended with %d: see %s", code, d.Log)
		}
		return nil
	case <-time.After(d.options.Patience):
		d.cmd.Process.Kill()
		<-d.exited
		return fmt.Errorf("penstock node does not end within %v of SIGTERM: see %s", d.options.Patience, d.Log)
	}
}

// State is the process's state as /proc gives it: R, S, T, ...
func (d *Daemon) State() (string, error) {
	state, _, err := proc.State(d.PID())
	return state, err
}

var web = http.Client{Timeout: 10 * time.Second}

const pageMax = 16 << 20 // bytes

// Get reads one of its pages, such as /-/healthy.
func (d *Daemon) Get(ctx context.Context, page string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.Address+page, nil)
	if err != nil {
		return nil, err
	}
	resp, err := web.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, pageMax))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("penstock node: %s: %s: %.300s", page, resp.Status, raw)
	}
	return raw, nil
}
