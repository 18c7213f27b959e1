package isolation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"penstock/testbed/ledger"

	"go.yaml.in/yaml/v3"
)

// daemon is a running `penstock node`, configured as its users configure it: by
// two files, of which the weights are reloaded while it runs.
type daemon struct {
	setup   PenstockSetup
	cmd     *exec.Cmd
	exited  chan struct{}
	book    *ledger.Ledger
	entry   ledger.ID
	weights string // path
	log     string // path
	url     string
	http    *http.Client
}

const (
	readyPatience  = 20 * time.Second
	reloadPatience = 10 * time.Second
	stopPatience   = 20 * time.Second
)

// startDaemon returns when the daemon is ready.
func startDaemon(ctx context.Context, m *Machine, p Phase) (_ *daemon, err error) {
	dir := m.options.RunDir
	m.jobSeq++
	d := &daemon{setup: m.setup.Penstock, book: m.book, exited: make(chan struct{}),
		weights: filepath.Join(dir, "weights.yaml"), http: &http.Client{Timeout: 3 * time.Second},
		log: filepath.Join(dir, fmt.Sprintf("node-%s-%d.log", p.Name, m.jobSeq))}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	d.url = "http://" + address
	if err := d.writeWeights("", ""); err != nil {
		return nil, err
	}
	settings := filepath.Join(dir, "node.yaml")
	if err := writeYAML(settings, nodeSettings(m.setup.Penstock, p, m.socket(), address, d.weights, m.options.Profile)); err != nil {
		return nil, err
	}
	log, err := os.Create(d.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d.cmd = exec.Command(m.options.Binary, "node", "--config", settings)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	// Of its own group: a terminal's Ctrl-C must end the run in order, not the
	// daemon under it.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if d.entry, err = d.book.StartProcess(d.cmd); err != nil {
		return nil, fmt.Errorf("start penstock node: %w", err)
	}
	go func() {
		d.cmd.Wait()
		close(d.exited)
	}()
	if err := d.await(ctx, readyPatience, "ready", d.ready); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// nodeSettings is the settings file. The device section is the same for every
// device: they are all alike. A profile tells what a request costs and how long
// it may take; without one the setup's lines do both.
func nodeSettings(s PenstockSetup, p Phase, socket, listen, weights, profile string) map[string]any {
	line := func(l LatencySetup) map[string]any {
		return map[string]any{"fixed": millis(l.FixedMillis), "per_mib": millis(l.PerMiBMillis)}
	}
	depth := map[string]any{}
	device := map[string]any{"algorithm": p.Algorithm, "quantum": bytesIn(s.QuantumBytes), "ahead": s.Ahead,
		"backlog": bytesIn(s.BacklogBytes), "depth": depth}
	if profile != "" {
		device["profile"] = profile
	} else {
		depth["read"], depth["write"] = line(s.ReferenceRead), line(s.ReferenceWrite)
	}
	if p.Adaptive() {
		depth["min"], depth["max"], depth["start"], depth["gain"] = s.DepthMin, s.DepthMax, s.DepthStart, s.DepthGain
	} else {
		depth["fixed"] = p.Depth
	}
	return map[string]any{"socket": socket, "listen": listen, "mode": "enforce", "weights": weights, "device": device}
}

func millis(ms float64) string { return time.Duration(ms * float64(time.Millisecond)).String() }

func bytesIn(n int64) string {
	if n%mib == 0 {
		return fmt.Sprintf("%dMiB", n/mib)
	}
	return fmt.Sprintf("%d", n)
}

// writeWeights replaces the weights file as an editor does, by a rename, so
// that the daemon never reads half of it.
func (d *daemon) writeWeights(protected, aggressor string) error {
	type rule struct {
		Application string `yaml:"application,omitempty"`
		Flow        string `yaml:"flow,omitempty"`
		Weight      int    `yaml:"weight"`
	}
	var rules []rule
	if protected != "" {
		rules = append(rules, rule{Application: protected, Weight: d.setup.ProtectedWeight})
	}
	if aggressor != "" {
		rules = append(rules, rule{Application: aggressor, Weight: d.setup.AggressorWeight})
	}
	rules = append(rules, rule{Flow: "clients", Weight: d.setup.ClientsWeight})
	return writeYAML(d.weights, map[string]any{"default": d.setup.AggressorWeight, "rules": rules})
}

func writeYAML(path string, v any) error {
	b, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", b, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// weigh writes the weights and waits until the daemon has taken them.
func (d *daemon) weigh(ctx context.Context, protected, aggressor string) error {
	before, err := d.scrape(ctx)
	if err != nil {
		return err
	}
	if err := d.writeWeights(protected, aggressor); err != nil {
		return err
	}
	return d.await(ctx, reloadPatience, "using the new weights", func(ctx context.Context) error {
		now, err := d.scrape(ctx)
		if err == nil && now.Reloads <= before.Reloads {
			err = errors.New("the weights file was not reloaded")
		}
		return err
	})
}

func (d *daemon) ready(ctx context.Context) error {
	body, err := d.get(ctx, "/-/ready")
	if err == nil {
		body.Close()
	}
	return err
}

func (d *daemon) scrape(ctx context.Context) (Metrics, error) {
	body, err := d.get(ctx, "/metrics")
	if err != nil {
		return Metrics{}, err
	}
	defer body.Close()
	return ParseMetrics(body)
}

func (d *daemon) get(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("penstock node: %s: %s", path, resp.Status)
	}
	return resp.Body, nil
}

// await polls until f succeeds; the error carries the end of the daemon's log.
func (d *daemon) await(ctx context.Context, patience time.Duration, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-d.exited:
			return fmt.Errorf("penstock node ended: %s", d.tail())
		case <-ctx.Done():
			return fmt.Errorf("penstock node is not %s: %w: %s", what, err, d.tail())
		}
	}
}

func (d *daemon) tail() string {
	b, _ := os.ReadFile(d.log)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return d.log + " ends with\n" + strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// stop asks the daemon to end, and ends it if it does not. One that died before
// is an error: the run it governed was not governed to its end.
func (d *daemon) stop() error {
	var err error
	select {
	case <-d.exited:
		err = fmt.Errorf("penstock node had ended by itself: %s", d.tail())
	default:
		d.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-d.exited:
		case <-time.After(stopPatience):
			d.cmd.Process.Kill()
			<-d.exited
			err = fmt.Errorf("penstock node did not end within %v of SIGTERM: %s", stopPatience, d.tail())
		}
	}
	return errors.Join(err, d.book.Undo(d.entry))
}

// freeAddress is a loopback address that nobody listens on now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
