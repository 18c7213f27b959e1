// Package zookeeper runs real ZooKeeper servers, one JVM each, for tests of the data that brokers
// store in them. The servers come from ZooKeeper's own artifact, with its own main classes and
// settings file. They are recorded in the run's ledger, so they end with the run.
//
// For tests of brokers, one server provides nearly everything: sessions that expire, ephemeral and
// sequential znodes, watches, versions and atomic transactions. An ensemble also elects its own
// leader: when the leader dies, clients' sessions continue at other servers.
package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/lab/ledger"
	"penstock/lab/poll"
	"penstock/lab/ports"
	"penstock/lab/process"
)

// Options are the options of a server.
type Options struct {
	Book *ledger.Ledger // ledger of the server's run
	Lib  string         // from Fetch
	Dir  string         // folder of its settings, data and log
	By   []string       // command that starts the server, such as `nsenter --net=FILE --`; nil: it is started directly
	// HeapMB is the JVM's maximum heap in MiB; default 128.
	HeapMB int
	// Secure, if not nil, adds a port for TLS to the plain port.
	Secure *Secure
	// Tick is ZooKeeper's unit of time; sessions last 2 to 20 ticks. Default 500ms.
	Tick time.Duration
	// Address is the address to listen on; default: a free port on loopback.
	Address string
	// Patience bounds the wait until the server accepts requests; default 1m.
	Patience time.Duration
}

// Secure contains the paths of the PEM files for a server's TLS port. Clients must show a
// certificate of the CA, because ZooKeeper requires one by default.
type Secure struct{ CA, Cert, Key string }

// Server is a running ZooKeeper. Only one goroutine may call its methods.
type Server struct {
	Address string // for clients
	Secure  string // for clients that use TLS; may be empty
	Log     string // path

	options Options
	id      int // number in its ensemble, from 1; 0: no ensemble
	members string
	process *process.Process
}

// Start starts a server in its folder and returns when the server accepts requests. If an earlier
// server has left data in the folder, the new server uses that data.
func Start(ctx context.Context, o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if o.Address == "" {
		var err error
		if o.Address, err = ports.Address(); err != nil {
			return nil, err
		}
	}
	s, err := newServer(o)
	if err != nil {
		return nil, err
	}
	return s, s.Start(ctx)
}

func (o *Options) complete() error {
	if o.Tick == 0 {
		o.Tick = 500 * time.Millisecond
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	if o.HeapMB == 0 {
		o.HeapMB = 128
	}
	if o.Tick < 50*time.Millisecond || o.Tick > time.Minute {
		return fmt.Errorf("zookeeper: tick %v: use 50ms to 1m", o.Tick)
	}
	return nil
}

func newServer(o Options) (*Server, error) {
	s := &Server{Address: o.Address, Log: filepath.Join(o.Dir, "zookeeper.log"), options: o}
	if o.Secure == nil {
		return s, nil
	}
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, fmt.Errorf("zookeeper: address %q: give host:port", o.Address)
	}
	free, err := ports.Free(1)
	if err != nil {
		return nil, err
	}
	s.Secure = net.JoinHostPort(host, strconv.Itoa(free[0]))
	return s, nil
}

// Start starts a killed or stopped server again, at the same address. A server of an ensemble
// accepts requests only while a majority of the ensemble's servers is running.
func (s *Server) Start(ctx context.Context) error {
	if err := s.spawn(); err != nil {
		return err
	}
	return s.await(ctx)
}

// settings returns the text of the server's settings file.
func (s *Server) settings(data string) (string, error) {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return "", fmt.Errorf("zookeeper: address %q: give host:port", s.Address)
	}
	text := fmt.Sprintf("tickTime=%d\ndataDir=%s\nclientPortAddress=%s\nclientPort=%s\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\nmaxClientCnxns=0\n",
		s.options.Tick.Milliseconds(), data, host, port)
	if s.id > 0 {
		// In ticks: the time that a follower has to connect to its leader, and the time by which it may
		// lag behind the leader.
		text += "initLimit=20\nsyncLimit=10\n" + s.members
	}
	if t := s.options.Secure; t != nil {
		host, port, err := net.SplitHostPort(s.Secure)
		if err != nil {
			return "", fmt.Errorf("zookeeper: address %q: give host:port", s.Secure)
		}
		both, err := s.keyStore()
		if err != nil {
			return "", err
		}
		// ZooKeeper's default implementation of the server's connections does not support TLS.
		text += fmt.Sprintf("serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\nsecureClientPortAddress=%s\nsecureClientPort=%s\n"+
			"ssl.keyStore.location=%s\nssl.keyStore.type=PEM\nssl.trustStore.location=%s\nssl.trustStore.type=PEM\n",
			host, port, both, t.CA)
	}
	return text, nil
}

// keyStore writes the key and its certificate into one file, as the server requires.
func (s *Server) keyStore() (file string, err error) {
	file = filepath.Join(s.options.Dir, "keystore.pem")
	var both []byte
	for _, f := range []string{s.options.Secure.Key, s.options.Secure.Cert} {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		both = append(both, text...)
	}
	return file, os.WriteFile(file, both, 0o600)
}

// spawn starts the server's process.
func (s *Server) spawn() error {
	data := filepath.Join(s.options.Dir, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	text, err := s.settings(data)
	if err != nil {
		return err
	}
	settings := filepath.Join(s.options.Dir, "zoo.cfg")
	if err := os.WriteFile(settings, []byte(text), 0o644); err != nil {
		return err
	}
	main := "org.apache.zookeeper.server.ZooKeeperServerMain"
	if s.id > 0 {
		main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
		if err := os.WriteFile(filepath.Join(data, "myid"), []byte(strconv.Itoa(s.id)+"\n"), 0o644); err != nil {
			return err
		}
	}
	// forceSync is off, because durability does not matter in tests and their disks are slow.
	command := append(slices.Clone(s.options.By), "java", fmt.Sprintf("-Xmx%dm", s.options.HeapMB), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no",
		"-cp", filepath.Join(s.options.Lib, "*"), main, settings)
	s.process, err = process.Start(process.Options{Book: s.options.Book, Name: "zookeeper", Log: s.Log, Dir: s.options.Dir}, command...)
	return err
}

// await waits until the server accepts requests.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.Patience)
	defer cancel()
	var unasked error
	err := poll.Until(ctx, 50*time.Millisecond, func() (bool, error) {
		var mode string
		if mode, unasked = s.Mode(ctx); unasked == nil && mode != "" { // otherwise the server does not accept requests yet
			return true, nil
		}
		if !s.Alive() {
			return false, s.process.Failure()
		}
		return false, nil
	})
	if err != nil && s.Alive() {
		return errors.Join(fmt.Errorf("zookeeper does not serve: see %s: %w", s.Log, err), unasked, s.Kill())
	}
	return err
}

// Mode returns the server's own report of its mode: standalone, leader or follower; empty while it
// does not accept requests.
func (s *Server) Mode(ctx context.Context) (string, error) {
	answer, err := s.ask(ctx, "srvr")
	if err != nil {
		return "", err
	}
	_, mode, _ := strings.Cut(answer, "Mode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	return mode, nil
}

// ask sends one of ZooKeeper's four-letter commands.
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

// Alive reports whether the server has been started and has not ended.
func (s *Server) Alive() bool { return s.process.Alive() }

// Kill ends the server with SIGKILL and returns when it has ended.
func (s *Server) Kill() error {
	s.process.Kill()
	return nil
}

// Stop ends the server with SIGTERM, as an operator does.
func (s *Server) Stop() error { return s.process.Stop(s.options.Patience) }
