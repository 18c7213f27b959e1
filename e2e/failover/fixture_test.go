package failover

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/netns"
	"penstock/lab/stand"
	"penstock/lab/zookeeper"
)

const (
	brokers = 3
	servers = 3 // of ZooKeeper, at one machine
	tick    = 500 * time.Millisecond
	session = 4 * tick
)

// shared has a machine for each broker and one for ZooKeeper.
var shared fixture.Stand

var (
	ensemble *zookeeper.Ensemble
	library  string       // ZooKeeper's jars
	log      *slog.Logger // of what runs in this process
	logged   textLog
	here     netip.Addr // of nodes
)

func TestMain(m *testing.M) {
	fixture.Main(m, &shared, stand.Spec{Name: "failover", Machines: brokers + 1, Stop: func() error {
		if ensemble == nil {
			return nil
		}
		return ensemble.Stop()
	}, Prepare: func(ctx context.Context, s *stand.Stand) error {
		file, err := os.Create(s.Path("here.log"))
		if err != nil {
			return err
		}
		log = slog.New(slog.NewTextHandler(io.MultiWriter(&logged, file), &slog.HandlerOptions{Level: slog.LevelDebug}))
		if library, err = zookeeper.Fetch(ctx, s.Spec.Cache, fixture.Say); err != nil {
			return err
		}
		if here, err = s.Network.Here(); err != nil {
			return err
		}
		machine := s.Network.Machines[brokers]
		ensemble, err = zookeeper.StartEnsemble(ctx, zookeeper.Options{Book: s.Book, Lib: library, Dir: s.Dir, Tick: tick,
			HeapMB: 96, Address: machine.Address.String(), By: at(machine)}, servers)
		return err
	}}, nil)
}

// at returns the start of a command line that runs a program on a machine.
func at(m *netns.Machine) []string {
	enter := m.Command(context.Background(), "true").Args
	return enter[:len(enter)-1]
}

// textLog keeps what was logged.
type textLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *textLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *textLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func write(t testing.TB, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	fixture.Must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}
