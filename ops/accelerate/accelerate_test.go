package accelerate

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/lab/ledger"
	"penstock/lab/netns"
	"penstock/node/control/join"
	"penstock/node/control/journal"
)

// TestRun joins a connection between two containers. It chooses one port, so no other connection is touched.
func TestRun(t *testing.T) {
	book, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { book.Close() })
	network, err := netns.New(book, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	server, client := network.Machines[0], network.Machines[1]
	l, err := server.Listen(t.Context(), server.Address.String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := Options{Folder: filepath.Join(t.TempDir(), "folder"), Ports: []uint16{uint16(l.Addr().(*net.TCPAddr).Port)},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var c, s net.Conn
	reports := 0
	last, err := Run(ctx, o, func(state State) {
		if reports++; reports == 1 {
			if _, err := Run(ctx, o, func(State) { t.Error("a second Run with the same folder reports") }); !errors.Is(err, journal.ErrInUse) || !strings.Contains(err.Error(), "control.joining") {
				t.Errorf("a second Run with the same folder: %v", err)
			}
			if c, err = client.Dial(ctx, l.Addr().String()); err == nil {
				s, err = l.Accept()
			}
			if err != nil {
				t.Error(err)
				cancel()
				return
			}
		}
		if state.Joined == 1 && state.Bytes > 0 {
			cancel() // a further message could go by TCP
			return
		}
		got := make([]byte, 5)
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(s, got); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if last.Joined != 1 || last.Connections != 1 || last.Translated != 0 || last.Released != 0 || last.Bytes == 0 || last.Bytes%5 != 0 || last.Error != "" {
		t.Errorf("%+v", last)
	}
	if text := last.String(); !strings.Contains(text, "1 joined now") {
		t.Error(text)
	}
	if _, err := os.Stat(o.Folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder after the end: %v", err)
	}
	if _, err := io.WriteString(c, "after"); err != nil {
		t.Error(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(s, got); err != nil || string(got) != "after" {
		t.Errorf("after the end: %q, %v", got, err)
	}
	c.Close()
	s.Close()
}

// A folder that somebody else uses, too, stays.
func TestFolderOfOthers(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "folder")
	if err := os.MkdirAll(filepath.Join(folder, "joined"), 0o755); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	if err := removeFolder(folder, logger); err != nil || !strings.Contains(log.String(), "the folder stays") {
		t.Errorf("%v, %s", err, log.String())
	}
	if err := os.Remove(filepath.Join(folder, "joined")); err != nil {
		t.Fatal(err)
	}
	if err := removeFolder(folder, logger); err != nil {
		t.Error(err)
	}
	if err := removeFolder(folder, logger); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is gone: %v", err)
	}
}

// TestRunFails reports what prevents the joining.
func TestRunFails(t *testing.T) {
	o := Options{Folder: filepath.Join(t.TempDir(), "no", "folder"), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	none := func(State) { t.Error("joined") }
	if _, err := Run(t.Context(), o, none); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a folder: %v", err)
	}
	o.Folder, o.Cgroup = t.TempDir(), filepath.Join(t.TempDir(), "no cgroup")
	if _, err := Run(t.Context(), o, none); err == nil || !strings.Contains(err.Error(), "no cgroup") {
		t.Errorf("without a cgroup: %v", err)
	}
	if left, err := os.ReadDir(o.Folder); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// The state's JSON is flat, as before the status document had the same type.
func TestStateAsJSON(t *testing.T) {
	text, err := json.Marshal(stateOf(&join.Status{ClosedConnections: 3, ClosedBytes: 5, Limited: "x"}, time.Now()))
	for _, want := range []string{`{"seconds":`, `"connections":0`, `"bytes":5`, `"closed":3`, `"limited":"x"`} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s: %v", text, want, err)
		}
	}
}
