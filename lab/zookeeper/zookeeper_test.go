package zookeeper

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"penstock/lab/ledger"
)

// TestMain runs the tests or, if this binary was started in front of a java command line, a fake
// server that only reports its mode. In an ensemble the second server leads.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "java" {
		fmt.Println(serve(os.Args[len(os.Args)-1]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func serve(settings string) error {
	text, err := os.ReadFile(settings)
	if err != nil {
		return err
	}
	value := map[string]string{}
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		value[k] = v
	}
	mode := "standalone"
	if id, err := os.ReadFile(value["dataDir"] + "/myid"); err == nil {
		if mode = "follower"; string(id) == "2\n" {
			mode = "leader"
		}
	}
	l, err := net.Listen("tcp", net.JoinHostPort(value["clientPortAddress"], value["clientPort"]))
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		io.ReadFull(c, make([]byte, len("srvr")))
		fmt.Fprintf(c, "Zookeeper version: 0\nMode: %s\nNode count: 5\n", mode)
		c.Close()
	}
}

func options(t *testing.T) Options {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
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
	return Options{Book: book, Dir: dir, By: []string{self}}
}

func TestServer(t *testing.T) {
	s, err := Start(t.Context(), options(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []func() error{s.Kill, s.Stop} {
		if mode, err := s.Mode(t.Context()); err != nil || mode != "standalone" {
			t.Errorf("%q, %v", mode, err)
		}
		if err := end(); err != nil || s.Alive() {
			t.Errorf("%v, alive %v", err, s.Alive())
		}
		if err := end(); err != nil {
			t.Errorf("the end of one that has ended: %v", err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestServerThatDoesNotServe(t *testing.T) {
	o := options(t)
	o.By = []string{"sh", "-c", "echo no such class; exit 1"}
	if s, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no such class") || s.Alive() {
		t.Errorf("one that ends: %v, alive %v", err, s.Alive())
	}
	o.By, o.Patience = []string{"sh", "-c", "exec sleep 600"}, 200*time.Millisecond
	if s, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "does not serve") || s.Alive() {
		t.Errorf("one that stays silent: %v, alive %v", err, s.Alive())
	}
}

func TestEnsemble(t *testing.T) {
	e, err := StartEnsemble(t.Context(), options(t), 3)
	if err != nil {
		t.Fatal(err)
	}
	leader, err := e.Leader(t.Context())
	if err != nil || leader != e.Servers[1] || len(strings.Split(e.Addresses(), ",")) != 3 {
		t.Errorf("leader %v of %s, %v", leader, e.Addresses(), err)
	}
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil || !leader.Alive() {
		t.Errorf("%v, alive %v", err, leader.Alive())
	}
	if err := e.Stop(); err != nil || leader.Alive() {
		t.Errorf("%v, alive %v", err, leader.Alive())
	}
}
