package broker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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
	"time"

	served "penstock/broker"
)

const (
	startMost = time.Minute // for the broker to be ready
	joinMost  = 5 * time.Minute
)

var readyLine = regexp.MustCompile(`msg=ready metrics=(\S+) .*listen=(\S+)`)

// process is the broker.
type process struct {
	cmd              *exec.Cmd
	exited           chan error
	metrics, address string
	log              string
}

// startBroker starts it and returns when it is ready. address may have the port 0.
func startBroker(ctx context.Context, q Request, dir, address string) (*process, error) {
	b := &process{log: filepath.Join(dir, "broker.log"), exited: make(chan error, 1)}
	log, err := os.OpenFile(b.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	at, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	b.cmd = exec.Command(q.Binary, "broker", "--listen", address, "--metrics", "127.0.0.1:0", "--connections-per-address", strconv.Itoa(served.MaxConnections),
		"--ca", filepath.Join(dir, "ca.pem"), "--cert", filepath.Join(dir, "broker.pem"), "--key", filepath.Join(dir, "broker.key"), "--log-level", "info")
	b.cmd.Stderr = log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { b.exited <- b.cmd.Wait() }()
	for deadline := time.Now().Add(startMost); ; {
		text, err := os.ReadFile(b.log)
		if err != nil {
			return nil, err
		}
		if m := readyLine.FindSubmatch(text[min(int(at), len(text)):]); m != nil {
			b.metrics, b.address = string(m[1]), string(m[2])
			return b, nil
		}
		select {
		case err := <-b.exited:
			b.exited <- err
			if text, logErr := os.ReadFile(b.log); logErr == nil {
				return nil, fmt.Errorf("the broker ended (%v): %s", err, text[min(int(at), len(text)):])
			}
			return nil, fmt.Errorf("the broker ended: %w", err)
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), b.kill())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("the broker is not ready after %v: %s", startMost, text), b.kill())
		}
	}
}

// kill is kill -9.
func (b *process) kill() error {
	if err := b.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-b.exited
	b.exited <- nil
	return nil
}

// peak is the largest resident size in bytes that it had, after it has ended.
func (b *process) peak() int64 {
	if u, ok := b.cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		return u.Maxrss << 10
	}
	return 0
}

// scrape reads what the broker says of itself: metrics without labels, and what its
// process's account in /proc is.
func (b *process) scrape(ctx context.Context) (map[string]float64, error) {
	resp, err := get(ctx, "http://"+b.metrics+"/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	found := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			found[name] = v
		}
	}
	return found, lines.Err()
}

// profile writes a CPU profile of some seconds.
func (b *process) profile(ctx context.Context, file string, length time.Duration) error {
	resp, err := get(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", b.metrics, max(1, int(length.Seconds()))))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, resp.Body)
	return errors.Join(err, f.Close())
}

func get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return resp, nil
}

// source is a generator's process and the pipes to it.
type source struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startSource(q Request, l Load) (*source, error) {
	own, err := os.Executable() // the generator is a hidden command of the laboratory
	if err != nil {
		return nil, err
	}
	s := &source{cmd: exec.Command(own, "bench", "broker", "nodes")}
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(s.in).Encode(l); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// look asks for what has been seen.
func (s *source) look() (l Look, err error) {
	if _, err := io.WriteString(s.in, "\n"); err != nil {
		return l, fmt.Errorf("a generator: %w", err)
	}
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return l, fmt.Errorf("a generator: %w", err)
	}
	return l, json.Unmarshal(line, &l)
}

func (s *source) stop() error {
	s.in.Close()
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = s.cmd.Wait() // it was killed
	return nil
}
