// Package daemon runs `penstock node` or `penstock broker` as a process, for failure tests. It can
// kill and stop the process, break its weights file, and send invalid data to its socket.
//
// The daemon is the binary that users run, and this package uses it as users do: two files
// configure the daemon, and its metrics and status show its state. The daemon is recorded in the
// run's ledger, so it ends with the run, however the run ends.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"penstock/lab/ledger"
	"penstock/lab/proc"
	"penstock/lab/process"
)

// Options are the options of a daemon.
type Options struct {
	Book   *ledger.Ledger // ledger of the daemon's run
	Binary string         // path of penstock
	Base   string         // path prefix of its files: BASE.yaml, BASE.weights.yaml, BASE.log
	Socket string         // path of the socket for agents
	Listen string         // address for its metrics; default: a free port of 127.0.0.1
	Mode   string         // off, observe or enforce
	Device string         // the settings' device section, YAML, indented by two spaces; may be ""
	More   string         // further settings, YAML; may be ""
	// Weights is the initial text of the weights file; default: every weight is 1.
	Weights  string
	LogLevel string // default debug
	// Peer must be set if Device names a scheduler for comparison (lab/schedulers).
	Peer bool
	// Broker, if not nil, contains the arguments of `penstock broker`, which runs instead of
	// `penstock node`. A broker has neither settings nor weights.
	Broker []string
	// By is the command that starts the daemon, such as `ip netns exec NAME`; nil: it is started
	// directly.
	By []string
	// Patience bounds the wait until the daemon is ready, and until it ends after SIGTERM.
	Patience time.Duration
}

// Believe is the settings section for tests with invented applications. The clients of such
// applications are not in containers, so if names were verified, the clients' I/O would be
// unattributed.
const Believe = "identity: {mode: trust}\n"

// Daemon is a running `penstock node` or `penstock broker`. Get, Scrape and Metric may be called
// from any goroutine, the other methods from only one.
type Daemon struct {
	Address string // address of its metrics
	Weights string // path of the weights file
	Log     string // path

	options Options
	*process.Process
}

var listening = regexp.MustCompile(`msg=ready .*listen=(\S+)`)

// Settings returns the text of the settings file.
func (o Options) Settings() string {
	text := fmt.Sprintf("socket: %s\nlisten: %s\nmode: %s\nweights: %s\n", o.Socket, cmp.Or(o.Listen, "127.0.0.1:0"), o.Mode, o.weightsFile())
	if o.Device != "" {
		text += "device:\n" + o.Device
	}
	if !strings.Contains(o.More, "flow_metrics:") {
		text += "flow_metrics: all\n" // runs add up the counters of applications that have ended
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
			o.Binary = filepath.Join(filepath.Dir(o.Binary), "penstock-lab") // in the same folder as penstock
		}
		if err := d.SetWeights(o.Weights); err != nil {
			return nil, err
		}
		if err := os.WriteFile(o.Base+".yaml", []byte(o.Settings()), 0o644); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(d.Log); err != nil && !errors.Is(err, os.ErrNotExist) { // remove the log of an earlier start
		return nil, err
	}
	var err error
	d.Process, err = process.Start(process.Options{Book: o.Book, Name: "penstock " + args[0], Log: d.Log},
		slices.Concat(o.By, []string{o.Binary}, args, []string{"--log-level", o.LogLevel})...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Patience)
	defer cancel()
	ready, err := d.Find(ctx, listening)
	if err != nil {
		d.Process.Kill()
		return nil, err
	}
	d.Address = ready[1]
	return d, nil
}

// SetWeights replaces the weights file by renaming a new file, as an editor does. So the daemon
// never reads an incomplete file.
func (d *Daemon) SetWeights(text string) error {
	if err := os.WriteFile(d.Weights+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(d.Weights+".new", d.Weights)
}

// Kill ends the daemon with SIGKILL and returns when it has ended. If the daemon had ended before,
// Kill returns an error.
func (d *Daemon) Kill() error {
	if err := d.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-d.Exited()
	return nil
}

// Stop ends the daemon with SIGTERM, as an operator does. It does nothing if the daemon has ended
// already.
func (d *Daemon) Stop() error {
	if !d.Alive() {
		return nil
	}
	if err := d.Process.Stop(d.options.Patience); err != nil {
		return err
	}
	if d.Failed() {
		return d.Failure()
	}
	return nil
}

// State returns the process's state from /proc: R, S, T, ...
func (d *Daemon) State() (string, error) {
	state, _, err := proc.State(d.PID())
	return state, err
}

var web = http.Client{Timeout: 10 * time.Second}

const pageMax = 16 << 20 // bytes

// Get returns one of the daemon's web pages, such as /-/healthy.
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
