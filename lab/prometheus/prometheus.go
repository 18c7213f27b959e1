// Package prometheus runs a real Prometheus (Debian's) on loopback, for tests of metrics, alerts and dashboards.
//
// A test can compare names, but only Prometheus itself decides whether it accepts a page of metrics, a rule or a query. The
// package is unpacked into the project's cache and not installed. The server is recorded in the run's ledger, so it ends
// with the run.
package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"penstock/lab/debian"
	"penstock/lab/ledger"
	"penstock/lab/poll"
	"penstock/lab/ports"
	"penstock/lab/process"
)

const (
	patience  = time.Minute
	grace     = 10 * time.Second
	maxAnswer = 16 << 20 // bytes
)

// Programs are the paths of Prometheus' programs.
type Programs struct{ Server, Promtool string }

// Fetch returns the programs on PATH, or those in the cache. If both lack them, Fetch unpacks Debian's package into the
// cache, which needs a Debian machine.
func Fetch(ctx context.Context, cacheDir string, progress func(format string, args ...any)) (Programs, error) {
	if server, err := exec.LookPath("prometheus"); err == nil {
		if tool, err := exec.LookPath("promtool"); err == nil {
			return Programs{server, tool}, nil
		}
	}
	dir, err := filepath.Abs(filepath.Join(cacheDir, "prometheus"))
	if err != nil {
		return Programs{}, err
	}
	if _, err := os.Stat(dir); err != nil {
		progress("Prometheus: fetching Debian's package (20 MB, and lists) into %s, once", dir)
	}
	if err := debian.Make(ctx, dir, "", func(p *debian.Packages, into string) error { return p.Unpack(ctx, "prometheus", into) }); err != nil {
		return Programs{}, fmt.Errorf("prometheus: %w", err)
	}
	bin := filepath.Join(dir, "usr", "bin")
	return Programs{filepath.Join(bin, "prometheus"), filepath.Join(bin, "promtool")}, nil
}

// Check runs promtool and returns an error with its output if it fails.
func (p Programs) Check(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, p.Promtool, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("promtool %v: %w\n%s", args, err, out)
	}
	return nil
}

// Server is a running Prometheus.
type Server struct {
	Address string // host:port
	Log     string // path

	process *process.Process
}

// Start starts a server with the configuration in the file config, and returns when the server is ready. All other files of
// the server are in dir.
func (p Programs) Start(ctx context.Context, book *ledger.Ledger, dir, config string) (*Server, error) {
	address, err := ports.Address()
	if err != nil {
		return nil, err
	}
	s := &Server{Address: address, Log: filepath.Join(dir, "prometheus.log")}
	s.process, err = process.Start(process.Options{Book: book, Name: "prometheus", Log: s.Log, Dir: dir}, p.Server,
		"--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "tsdb"), "--web.listen-address="+address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := poll.Until(ctx, 100*time.Millisecond, func() (bool, error) {
		_, err := s.get(ctx, "/-/ready", nil)
		return err == nil, nil
	}); err != nil {
		s.process.Kill()
		return nil, fmt.Errorf("prometheus is not ready (its log is %s): %w", s.Log, err)
	}
	return s, nil
}

// Stop ends the server.
func (s *Server) Stop() error { return s.process.Stop(grace) }

// Answer stores the field "data" of an answer of the HTTP interface, such as of /api/v1/targets, in data.
func (s *Server) Answer(ctx context.Context, path string, query url.Values, data any) error {
	text, err := s.get(ctx, path, query)
	if err != nil {
		return err
	}
	a := struct{ Data any }{data}
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Sample is one series of an answer.
type Sample struct {
	Metric map[string]string
	Value  [2]any // time and value
}

// Query returns the present result of an expression that is a vector.
func (s *Server) Query(ctx context.Context, expression string) ([]Sample, error) {
	var data struct{ Result []Sample }
	if err := s.Answer(ctx, "/api/v1/query", url.Values{"query": {expression}}, &data); err != nil {
		return nil, fmt.Errorf("%s: %w", expression, err)
	}
	return data.Result, nil
}

func (s *Server) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Address+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.300s", path, resp.Status, text)
	}
	return text, err
}
