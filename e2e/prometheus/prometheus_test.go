package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/lab/daemon"
	"penstock/lab/ledger"
	"penstock/lab/poll"
	"penstock/lab/prometheus"
	"penstock/wire"
)

const (
	application = "application_1_0001"
	patience    = 2 * time.Minute
)

var (
	root   = filepath.Join("..", "..")
	deploy = filepath.Join(root, "deploy")
)

func programs(t *testing.T) prometheus.Programs {
	t.Helper()
	p, err := prometheus.Fetch(t.Context(), filepath.Join(root, ".cache"), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRules checks the alerts with promtool: their form, and whether they fire when they should and only then.
func TestRules(t *testing.T) {
	p := programs(t)
	for _, args := range [][]string{
		{"check", "rules", filepath.Join(deploy, "prometheus", "penstock.rules.yml")},
		{"test", "rules", filepath.Join(deploy, "prometheus", "penstock.rules.test.yml")},
	} {
		if err := p.Check(t.Context(), args...); err != nil {
			t.Error(err)
		}
	}
}

// cluster is a daemon and a broker, with an application that writes a file.
type cluster struct {
	node, broker string // addresses of their metrics
}

func start(t *testing.T, book *ledger.Ledger, dir string) cluster {
	t.Helper()
	binary, err := filepath.Abs(filepath.Join(root, "bin", "penstock"))
	if err != nil {
		t.Fatal(err)
	}
	begin := func(o daemon.Options) *daemon.Daemon {
		o.Book, o.Binary, o.Patience = book, binary, patience
		d, err := daemon.Start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Stop(); err != nil {
				t.Error(err)
			}
		})
		return d
	}
	b := begin(daemon.Options{Base: filepath.Join(dir, "broker"), Broker: []string{"run", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"}})
	metrics, err := b.Find(t.Context(), regexp.MustCompile(`msg=ready .*metrics=(\S+)`))
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	n := begin(daemon.Options{Base: filepath.Join(dir, "node"), Socket: socket, Mode: "observe",
		More: daemon.Believe + fmt.Sprintf("flow_metrics: used\nforeign: totals\ndata_dirs: [%s]\nbroker: {addresses: [%q], node: n1}\n", data, b.Address)})
	write(t, socket, data)
	return cluster{node: n.Address, broker: metrics[1]}
}

// write makes an agent's connection, and writes about 1 MB/s to a file for the application until the test ends.
func write(t *testing.T, socket, dir string) {
	t.Helper()
	const piece = 256 << 10
	f, err := os.Create(filepath.Join(dir, "blk_1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	send := func(m wire.Message) error {
		b, err := wire.Append(nil, m)
		if err == nil {
			_, err = conn.Write(b)
		}
		return err
	}
	for _, m := range []wire.Message{wire.Hello{PID: uint32(os.Getpid()), Role: wire.RoleDataNode, Agent: "test", Directories: []string{dir}},
		wire.Open{Stream: 1, Direction: wire.Write, Flow: application, Path: f.Name()}} {
		if err := send(m); err != nil {
			t.Fatal(err)
		}
	}
	var running sync.WaitGroup
	stop := make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		conn.Close()
		running.Wait()
	})
	running.Go(func() {
		for frames := wire.NewReader(conn); ; { // in observe mode, no mark holds the writer
			if _, err := frames.Next(); err != nil {
				return
			}
		}
	})
	running.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for at := int64(0); ; at += piece {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			_, err := f.WriteAt(make([]byte, piece), at)
			if err == nil {
				err = send(wire.Progress{Stream: 1, Position: at + piece})
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
}

// eventually waits until a condition holds. An error, such as that of a query that was late, means that it does not hold yet.
func eventually(t *testing.T, what string, holds func(ctx context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var last error
	if err := poll.Until(ctx, 200*time.Millisecond, func() (ok bool, _ error) {
		ok, last = holds(ctx)
		return ok && last == nil, nil
	}); err != nil {
		t.Fatalf("waiting for %s: %v", what, errors.Join(err, last))
	}
}

// TestRealPrometheus checks that Prometheus scrapes both programs, that it evaluates each rule and each query of the
// dashboards without an error, and that no critical alert is pending for a healthy cluster.
func TestRealPrometheus(t *testing.T) {
	p := programs(t)
	dir := t.TempDir()
	book, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	})
	c := start(t, book, dir)
	rules, err := filepath.Abs(filepath.Join(deploy, "prometheus", "penstock.rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte(fmt.Sprintf(`global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
  - job_name: penstock-node
    static_configs: [{targets: [%q]}]
  - job_name: penstock-broker
    static_configs: [{targets: [%q]}]
`, rules, c.node, c.broker)), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := p.Start(t.Context(), book, dir, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, expression := range []string{
		`up{job="penstock-node"} == 1`, `up{job="penstock-broker"} == 1`, "penstock_broker_leading == 1", "penstock_broker_nodes == 1",
		fmt.Sprintf(`penstock_application_nodes{application=%q} == 1`, application),
		fmt.Sprintf(`penstock_flow_streams{flow=%q} == 1`, application), "penstock_heartbeat_stalled_devices == 0", "penstock_cluster_in_force",
	} {
		eventually(t, expression, func(ctx context.Context) (bool, error) {
			found, err := s.Query(ctx, expression)
			return len(found) > 0, err
		})
	}
	t.Run("rules", func(t *testing.T) { checkRules(t, s) })
	for _, file := range []string{"penstock-cluster.json", "penstock-nodes.json"} {
		t.Run(file, func(t *testing.T) { checkDashboard(t, s, filepath.Join(deploy, "grafana", file)) })
	}
	// docs/operate/metrics.md has these figures.
	for selector, most := range map[string]int{
		`job="penstock-node",__name__!~"penstock_(device|flow|request)_.*"`: 120, `__name__=~"penstock_(device|request)_.*"`: 90,
		fmt.Sprintf(`flow=%q`, application): 30, fmt.Sprintf(`application=%q`, application): 6, `job="penstock-broker"`: 150,
	} {
		var found []prometheus.Sample
		eventually(t, selector, func(ctx context.Context) (_ bool, err error) { // a late scrape leaves a gap
			found, err = s.Query(ctx, fmt.Sprintf(`count({%s})`, selector))
			return len(found) == 1, err
		})
		n, err := strconv.Atoi(found[0].Value[1].(string))
		if t.Logf("{%s}: %d series", selector, n); err != nil || n > most {
			t.Errorf("{%s}: %d series, want at most %d (%v)", selector, n, most, err)
		}
	}
}

func checkRules(t *testing.T, s *prometheus.Server) {
	type rule struct{ Name, Health, LastError, State string }
	var all struct{ Groups []struct{ Rules []rule } }
	healthy := []string{"PenstockNodeDown", "PenstockHeartbeatStalled", "PenstockDeviceUngoverned", "PenstockNoAgents", "PenstockBrokerDown", "PenstockNoLeader", "PenstockBrokerWithoutNodes"}
	// A scrape that was late on busy CPUs may make an alert pending for some seconds.
	eventually(t, "all rules to be evaluated, and no alert for a healthy cluster", func(ctx context.Context) (bool, error) {
		if err := s.Answer(ctx, "/api/v1/rules", nil, &all); err != nil {
			return false, err
		}
		for _, g := range all.Groups {
			for _, r := range g.Rules {
				if r.Health == "unknown" || slices.Contains(healthy, r.Name) && r.State != "inactive" {
					return false, fmt.Errorf("%s is %s, its health %s", r.Name, r.State, r.Health)
				}
			}
		}
		return len(all.Groups) > 0, nil
	})
	for _, g := range all.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				t.Errorf("%s: %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
}

func checkDashboard(t *testing.T, s *prometheus.Server, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$instance", ".*", "$device", ".*", "$application", ".*", "$__rate_interval", "1m")
	// What this cluster has not: guarantees, refusals, and on some machines a device with counters.
	absent := regexp.MustCompile(`total_reserve|promise_seconds|streams_refused|foreign_bytes|busy_seconds`)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			eventually(t, p.Title, func(ctx context.Context) (bool, error) {
				found, err := s.Query(ctx, variables.Replace(target.Expr))
				return len(found) > 0 || absent.MatchString(target.Expr), err
			})
		}
	}
}
