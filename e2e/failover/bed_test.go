package failover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"penstock/lab/ledger"
	"penstock/lab/netns"
	"penstock/lab/stand"
	"penstock/lab/zookeeper"
)

const (
	brokers  = 3
	servers  = 3           // of ZooKeeper, at one machine
	patience = time.Minute // bounds every wait for an event
	tick     = 500 * time.Millisecond
	session  = 4 * tick
)

// bed is what the tests share.
var bed struct {
	dir, binary string
	book        *ledger.Ledger
	lib         string // ZooKeeper's
	zookeeper   *zookeeper.Ensemble
	log         *slog.Logger // of what runs in this process
	logged      logged
	network     *netns.Network
	here        netip.Addr // of nodes
}

func TestMain(m *testing.M) { os.Exit(stand.Run(m, &bed.dir, setUp, tearDown)) }

func setUp(ctx context.Context) (err error) {
	if bed.dir, err = os.MkdirTemp("", "penstock-failover-"); err != nil {
		return err
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return err
	}
	bed.binary = filepath.Join(root, "bin", "penstock")
	if _, err := os.Stat(bed.binary); err != nil {
		return fmt.Errorf("run make build first: %w", err)
	}
	file, err := os.Create(filepath.Join(bed.dir, "here.log"))
	if err != nil {
		return err
	}
	bed.log = slog.New(slog.NewTextHandler(io.MultiWriter(&bed.logged, file), &slog.HandlerOptions{Level: slog.LevelDebug}))
	if bed.book, err = ledger.Open(bed.dir); err != nil {
		return err
	}
	if bed.lib, err = zookeeper.Fetch(ctx, filepath.Join(root, ".cache"), say); err != nil {
		return err
	}
	if bed.network, err = netns.New(bed.book, brokers+1); err != nil {
		return err
	}
	if bed.here, err = bed.network.Here(); err != nil {
		return err
	}
	keeper := bed.network.Machines[brokers]
	bed.zookeeper, err = zookeeper.StartEnsemble(ctx, zookeeper.Options{Book: bed.book, Lib: bed.lib, Dir: bed.dir, Tick: tick,
		HeapMB: 96, Address: keeper.Address.String(), By: at(keeper)}, servers)
	return err
}

var tearDown = sync.OnceValue(func() error {
	var errs []error
	if bed.zookeeper != nil {
		errs = append(errs, bed.zookeeper.Stop())
	}
	if bed.network != nil {
		errs = append(errs, bed.network.Close())
	}
	if bed.book != nil {
		errs = append(errs, bed.book.Close())
	}
	return errors.Join(errs...)
})

// at is the command that starts another one at a machine.
func at(m *netns.Machine) []string {
	enter := m.Command(context.Background(), "true").Args
	return enter[:len(enter)-1]
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// logged is what was logged in this process.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func write(t testing.TB, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
