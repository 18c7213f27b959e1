package failure

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"testing"
	"time"

	"penstock/node/ipc"
	"penstock/wire"
)

// While a job writes, other peers send the daemon what they must not.
func TestBadFrames(t *testing.T) {
	dir := begin(t)
	d := startGoverning(t)
	f := transfer{app: newApplication(), path: dir + "/beside", bytes: 64 * mib, seed: 8, replication: 2, limit: 8 * mib}
	writer := put(t, f)
	writer.awaitStop(t, 8*mib)

	data := filepath.Join(small.disks[0].Mount(), "data")
	hello, err := wire.Append(nil, wire.Hello{PID: 1, Role: 1, Agent: "a peer that is wrong", Directories: []string{data}})
	if err != nil {
		t.Fatal(err)
	}
	frame := func(typ, version byte, length int, payload ...byte) []byte {
		return append([]byte{byte(length >> 8), byte(length), typ, version}, payload...)
	}
	seed := [32]byte{'p', 'e', 'n', 's', 't', 'o', 'c', 'k'}
	noise := make([]byte, 64<<10)
	rand.NewChaCha8(seed).Read(noise)
	noise[0], noise[1] = 0xff, 0xff // whatever the seed, not a hello
	after := func(b []byte) []byte { return append(append([]byte(nil), hello...), b...) }
	welcome, err := wire.Append(nil, wire.Welcome{Mode: 2, Stride: 1, HeartbeatMs: 250})
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string][]byte{
		"noise":                    noise,
		"noise after a hello":      after(noise),
		"oversized":                frame(1, 1, 0xffff),
		"oversized after a hello":  after(append(frame(3, 1, wire.MaxPayload+1), make([]byte, wire.MaxPayload+1)...)),
		"of no type":               after(frame(200, 1, 0)),
		"of a version to come":     after(frame(4, 9, 12, make([]byte, 12)...)),
		"too short for its type":   after(frame(4, 1, 3, 0, 0, 0)),
		"a welcome from an agent":  after(welcome),
		"progress before a hello":  frame(4, 1, 12, make([]byte, 12)...),
		"a string beyond its end":  after(frame(3, 1, 9, 0, 0, 0, 1, 1, 0xff, 0xff, 'a', 'b')),
		"two hellos":               after(hello),
		"a stream's negative mark": after(frame(4, 1, 12, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)),
	}
	before := d.metric(t, "agent_bad_frames_total")
	for what, frames := range bad {
		if err := refused(frames); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	d.awaitMetric(t, atLeast(before+float64(len(bad))), "agent_bad_frames_total")

	// Half frames: one peer goes, others stay and say no more.
	for range 3 {
		c := dial(t)
		c.Write(hello[:len(hello)/2])
		c.Close()
	}
	for range 3 {
		c := dial(t)
		c.Write(after(frame(4, 1, 12, 0, 0)))
		c = dial(t)
		c.Write(hello[:3])
	}
	// A peer that asks for files that are not its business gets nothing opened,
	// and lives on.
	before = d.metric(t, "agent_open_errors_total")
	c := dial(t)
	c.Write(hello)
	paths := []string{"/etc/passwd", data + "/../../ledger.jsonl", data + "/VERSION-that-is-not-there", data, "/dev/zero"}
	for i, p := range paths {
		open, err := wire.Append(nil, wire.Open{Stream: uint32(i), Direction: wire.Read, Flow: f.app.flow(), Block: p, To: 1 << 40})
		if err != nil {
			t.Fatal(err)
		}
		c.Write(open)
	}
	d.awaitMetric(t, is(int(before)+len(paths)), "agent_open_errors_total")
	// More peers than the daemon takes.
	before = d.metric(t, "agent_connections_refused_total")
	for range ipc.MaxConnections {
		dial(t).Write(hello)
	}
	d.awaitMetric(t, func(v float64) bool { return v > before }, "agent_connections_refused_total")

	// All the while, the others are served.
	writer.to(-1)
	writer.endIntact(t, f)
	d.checkHealthy(t)
	for i := range nodes {
		d.awaitMetric(t, atLeast(float64(f.bytes)), "flow_bytes_total", flow(f.app), writes, onDevice(i))
	}
	readBack(t, f)
}

// dial connects to the daemon for as long as the test lasts.
func dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", small.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// refused sends frames and waits until the daemon hangs up.
func refused(frames []byte) error {
	c, err := net.Dial("unix", small.socket)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	// It may hang up before it has read all.
	sent := make(chan struct{})
	go func() { c.Write(frames); close(sent) }()
	_, err = io.Copy(io.Discard, c)
	<-sent
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return errors.New("the daemon does not hang up")
	}
	return nil
}
