package node

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/client"
	"penstock/node/status"
)

// TestShortCircuitRead: a client reads block files itself, without the DataNode and its gates. Its
// reads count as foreign I/O: Penstock names the process and its bytes, and does not attribute them
// to an application.
func TestShortCircuitRead(t *testing.T) {
	const (
		bytes          = 4 * block
		writer, reader = 41, 42
	)
	ctx := shared.Begin(t, 4*time.Minute)
	path := "/" + t.Name()
	shared.Remove(t, path)
	fixture.Must(t, do(ctx, "put", fmt.Sprintf("path=%s seed=1 attempt=%s bytes=%d block=%d", path, client.Attempt(writer), bytes, block)))
	for _, d := range dataDisks() {
		fixture.Must(t, d.Forget())
	}
	conf := shared.ShortCircuited(t)
	read := func() (all int64, names []string) {
		doc := shared.Look(t)
		for _, d := range dataDisks() {
			for _, u := range fixture.Device(t, doc, d).ForeignUsers.Top {
				// No other process has this folder in its command line.
				if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", u.PID)); err == nil && u.PID > 0 && strings.Contains(string(line), conf) {
					all += u.Bytes.Read
					names = append(names, u.Name)
				}
			}
		}
		return all, names
	}
	jvm := newClients(t, conf)
	fixture.Must(t, doIn(ctx, jvm, "get", fmt.Sprintf("path=%s seed=1 attempt=%s", path, client.Attempt(reader))))
	fixture.Eventually(t, "the client is listed with its bytes", func() bool {
		all, _ := read()
		return all >= bytes*95/100
	})
	all, names := read() // with the checksums, a byte for 128
	t.Logf("listed as %q", names)
	within5(t, "read by the client", all, bytes)

	var governed status.Flow
	for _, d := range dataDisks() {
		f := fixture.Flow(fixture.Device(t, shared.Look(t), d), client.Application(reader))
		governed.Bytes.Read += f.Bytes.Read
		governed.ResidentBytes += f.ResidentBytes
	}
	if governed.Bytes.Read+governed.ResidentBytes > 0 {
		t.Errorf("%s has %d bytes of the disks and %d of the page cache: it was no short-circuit read", client.Application(reader), governed.Bytes.Read, governed.ResidentBytes)
	}
}

// newClients starts clients with another configuration.
func newClients(t *testing.T, conf string) *client.JVM {
	t.Helper()
	return shared.StartClients(t, client.Options{Conf: conf, Temp: t.TempDir(), Log: shared.Path("circuit.log")})
}
