package node

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/client"
	"penstock/node/status"
)

// TestAConnectionIsPaced: a rule of the weights file holds the connection by which an application reads
// from the DataNode, live, and lets it go.
func TestAConnectionIsPaced(t *testing.T) {
	ctx := shared.Begin(t, 4*time.Minute)
	const number, size, limit = 22, 256 * fixture.MiB, 4 * fixture.MiB
	path := fmt.Sprintf("/%s/file", t.Name())
	shared.Remove(t, "/"+t.Name())
	fixture.Must(t, do(ctx, "put", fmt.Sprintf("path=%s attempt=%s bytes=%d block=%d replication=1 seed=1", path, client.Attempt(number), int64(size), int64(size))))
	block := shared.Blocks(t, path)[0]
	for _, d := range shared.Disks {
		fixture.Must(t, d.Forget())
	}
	slow(t)
	rule := fmt.Sprintf("default: 1\nconnections: [{application: %s, direction: read, limit: 4MiB}]\n", client.Application(number))
	fixture.Must(t, shared.SetWeights(ctx, 0, rule))
	t.Cleanup(func() { fixture.Check(t, shared.SetWeights(context.Background(), 0, "default: 1\n")) })
	done := make(chan error, 1)
	go func() {
		done <- do(ctx, "get", fmt.Sprintf("path=%s attempt=%s bytes=%d seed=1", path, client.Attempt(number), int64(size)))
	}()
	var doc *status.Document
	rate := func() float64 {
		doc = shared.Look(t)
		for _, c := range doc.Connections.Top {
			if c.Block == block && c.Streaming {
				return c.SentRate
			}
		}
		return 0
	}
	paced := func() bool {
		held := false
		for _, h := range doc.Control.Holds {
			held = held || h.Held && h.Mechanism == "pacing" && h.Flow == client.Application(number)
		}
		return held
	}
	said := func() string {
		return fmt.Sprintf("connections %+v; control %+v", doc.Connections, doc.Control)
	}
	fixture.EventuallyWithin(t, "the connection is paced", 40*time.Second, func() bool {
		r := rate()
		return paced() && r > 0.9*limit && r < 1.1*limit
	}, said)
	t.Logf("at a limit of %.2f MB/s: %.2f MB/s", limit/1e6, rate()/1e6)
	fixture.Must(t, shared.SetWeights(ctx, 0, "default: 1\n"))
	fixture.EventuallyWithin(t, "the connection is faster without the rule, or has ended", 40*time.Second, func() bool {
		select {
		case err := <-done:
			fixture.Must(t, err)
			done <- nil
			return true
		default:
		}
		return rate() > 2*limit && !paced() && doc.Control.Changes == 0
	}, said)
	fixture.Must(t, <-done)
}

// TestConnections: while an application reads a file, the daemon lists the connection with the
// application, the block and the bytes, and it lists as many connections as ss does.
func TestConnections(t *testing.T) {
	ctx := shared.Begin(t, 2*time.Minute)
	// The daemon looks at connections every 5 s; reading takes 10 s at the disk's rate.
	const number, size = 21, 192 * fixture.MiB
	path := fmt.Sprintf("/%s/file", t.Name())
	shared.Remove(t, "/"+t.Name())
	fixture.Must(t, do(ctx, "put", fmt.Sprintf("path=%s attempt=%s bytes=%d block=%d replication=1 seed=1", path, client.Attempt(number), int64(size), int64(size))))
	block := shared.Blocks(t, path)[0]
	for _, d := range shared.Disks {
		fixture.Must(t, d.Forget())
	}
	slow(t)
	done := make(chan error, 1)
	go func() {
		done <- do(ctx, "get", fmt.Sprintf("path=%s attempt=%s bytes=%d seed=1", path, client.Attempt(number), int64(size)))
	}()
	var found status.Connection
	var doc *status.Document
	seen := map[string]bool{}
	fixture.EventuallyWithin(t, "the reader's connection is listed with its rate", 40*time.Second, func() bool {
		doc = shared.Look(t)
		for _, c := range doc.Connections.Top {
			seen[fmt.Sprintf("%s %s %s %v", c.Flow, c.Direction, c.Block, c.Streaming)] = true
		}
		for _, c := range doc.Connections.Top {
			if c.Block == block && c.Flow == client.Application(number) && c.Streaming && c.SentRate > 0 {
				found = c
				return true
			}
		}
		return false
	}, func() string {
		return fmt.Sprintf("%s %s; seen: %v; error %q", client.Application(number), block, slices.Sorted(maps.Keys(seen)), doc.Connections.Error)
	})
	// The client may use a connection again that has sent another file before: the bytes are those of the connection.
	if found.Direction != "read" || found.SentBytes < fixture.MiB || found.RTTNS <= 0 {
		t.Errorf("the reader's connection is %+v", found)
	}
	kernel := 0
	for _, port := range doc.Connections.Ports {
		out, err := exec.CommandContext(ctx, "ss", "-Htn", "state", "established", fmt.Sprintf("sport = :%d", port)).Output()
		fixture.Must(t, err)
		kernel += bytes.Count(out, []byte("\n"))
		if strings.HasSuffix(found.Server, fmt.Sprintf(":%d", port)) && !strings.Contains(string(out), found.Client[strings.LastIndexByte(found.Client, ':'):]) {
			t.Errorf("ss does not list the connection from %s:\n%s", found.Client, out)
		}
	}
	// Connections may begin and end between the two lists.
	if n := doc.Connections.Established; doc.Connections.Error != "" || n < kernel-2 || n > kernel+2 {
		t.Errorf("%d connections (%s), ss lists %d", n, doc.Connections.Error, kernel)
	}
	fixture.Must(t, <-done)
}
