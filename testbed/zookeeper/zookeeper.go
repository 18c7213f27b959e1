// Package zookeeper runs a real ZooKeeper server, one JVM, for tests of what brokers keep
// in it. It is the server of ZooKeeper's own artifact with its own main class and settings
// file; it is in the run's ledger, so that it ends with the run, however the run ends.
//
// An ensemble of one has all that brokers see of ZooKeeper: sessions that expire, ephemeral
// and sequential znodes, watches, versions, atomic multi. What it has not is a server that
// is cut off from the majority.
package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"penstock/testbed/ledger"
	"penstock/testbed/ports"
)

// Options of a server.
type Options struct {
	Book *ledger.Ledger // of the run that it belongs to
	Lib  string         // from Fetch
	Dir  string         // its settings, its data and its log
	By   []string       // the command that starts it, such as `nsenter --net=FILE --`; nil: it is started as it is
	// Tick is ZooKeeper's unit of time; sessions last 2 to 20 of them. Default 500ms.
	Tick time.Duration
	// Address to listen on; default one of loopback with a free port.
	Address string
	// Patience bounds the wait for it to serve; default a minute.
	Patience time.Duration
}

// Server is a running ZooKeeper. Its methods are for one goroutine.
type Server struct {
	Address string // for clients
	Log     string // path

	options Options
	cmd     *exec.Cmd
	exited  <-chan struct{}
}

// Start starts a server on its folder and returns when it serves. Data of a server that
// was there before is taken up.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Tick == 0 {
		o.Tick = 500 * time.Millisecond
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	if o.Tick < 50*time.Millisecond || o.Tick > time.Minute {
		return nil, fmt.Errorf("zookeeper: tick %v: use 50ms to 1m", o.Tick)
	}
	if o.Address == "" {
		var err error
		if o.Address, err = ports.Address(); err != nil {
			return nil, err
		}
	}
	s := &Server{Address: o.Address, Log: filepath.Join(o.Dir, "zookeeper.log"), options: o}
	return s, s.Start(ctx)
}

// Start starts a server that was killed or stopped again, at the same address.
func (s *Server) Start(ctx context.Context) error {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return fmt.Errorf("zookeeper: address %q: give host:port", s.Address)
	}
	data := filepath.Join(s.options.Dir, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	settings := filepath.Join(s.options.Dir, "zoo.cfg")
	text := fmt.Sprintf("tickTime=%d\ndataDir=%s\nclientPortAddress=%s\nclientPort=%s\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\nmaxClientCnxns=0\n",
		s.options.Tick.Milliseconds(), data, host, port)
	if err := os.WriteFile(settings, []byte(text), 0o644); err != nil {
		return err
	}
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	// Its disk is not the matter here, and tests' disks are slow.
	command := append(slices.Clone(s.options.By), "java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no",
		"-cp", filepath.Join(s.options.Lib, "*"), "org.apache.zookeeper.server.ZooKeeperServerMain", settings)
	s.cmd = exec.Command(command[0], command[1:]...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.options.Dir, log, log
	if s.exited, err = s.options.Book.Spawn(s.cmd); err != nil {
		return fmt.Errorf("zookeeper: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Patience)
	defer cancel()
	for {
		answer, err := s.ask(ctx, "srvr")
		if err == nil && strings.Contains(answer, "Mode: ") { // else it does not serve yet
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("zookeeper ended: see %s", s.Log)
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("zookeeper does not serve: see %s: %w", s.Log, ctx.Err()), err, s.Kill())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ask sends one of ZooKeeper's four-letter words.
func (s *Server) ask(ctx context.Context, word string) (string, error) {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", s.Address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 64<<10))
	return strings.TrimSpace(string(answer)), err
}

// Kill ends it with SIGKILL and returns when it has gone.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

// Stop ends it as an operator does.
func (s *Server) Stop() error { return s.end(syscall.SIGTERM) }

func (s *Server) end(signal syscall.Signal) error {
	select {
	case <-s.exited:
		return nil
	default:
	}
	if err := s.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("zookeeper: %v: %w", signal, err)
	}
	select {
	case <-s.exited:
		return nil
	case <-time.After(s.options.Patience):
		return fmt.Errorf("zookeeper does not end within %v of %v: see %s", s.options.Patience, signal, s.Log)
	}
}
