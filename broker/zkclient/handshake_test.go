package zkclient

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"
)

// deadlines is a connection that only records the last deadline.
type deadlines struct {
	net.Conn
	set  int
	last time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set++
	d.last = t
	return nil
}

// TestReadTimeout: the read time-out depends on the requested and the granted session length (0:
// the handshake was not read yet).
func TestReadTimeout(t *testing.T) {
	for _, test := range []struct{ asked, given, asks, want time.Duration }{
		{3 * time.Second, 0, 20 * time.Second, 2 * time.Second},
		{500 * time.Millisecond, 0, 20 * time.Second, 500 * time.Millisecond},
		{time.Minute, 0, 400 * time.Second, 30 * time.Second},
		{3 * time.Second, 3 * time.Second, 2 * time.Second, 1500 * time.Millisecond},
		{3 * time.Second, 2 * time.Second, 4 * time.Second / 3, time.Second},
		// More than the third of a session after which the library requests an answer from the
		// server.
		{3 * time.Second, 12 * time.Second, 8 * time.Second, 5 * time.Second},
		{3 * time.Second, 3 * time.Second, time.Second, time.Second},
	} {
		k := &Client{requested: test.asked, log: slog.New(slog.DiscardHandler)}
		noted := &deadlines{}
		l := &handshakeConn{Conn: noted, client: k}
		if test.given > 0 {
			l.received = handshakeBytes
			k.granted.Store(int64(test.given))
		}
		begin := time.Now()
		if err := l.SetReadDeadline(begin.Add(test.asks)); err != nil {
			t.Fatal(err)
		}
		if early, late := begin.Add(test.want), time.Now().Add(test.want); noted.last.Before(early) || noted.last.After(late) {
			t.Errorf("session of %v, granted %v: %v requested and %v set, want %v", test.asked, test.given, test.asks, noted.last.Sub(begin), test.want)
		}
		// In the middle of the handshake the library removes its deadline.
		if err := l.SetReadDeadline(time.Time{}); err != nil || (noted.set == 2) != (test.given > 0) {
			t.Errorf("session of %v, granted %v: %d deadlines, %v", test.asked, test.given, noted.set, err)
		}
	}
}

// TestHangs: a server that hangs before, during or after the handshake is abandoned for another
// one.
func TestHangs(t *testing.T) {
	const session = 900 * time.Millisecond
	// The library waits six seconds for a handshake, and without a limit for the rest of one.
	const most = 4 * time.Second
	welcome := binary.BigEndian.AppendUint32(nil, 36)
	welcome = binary.BigEndian.AppendUint32(welcome, 0)
	welcome = binary.BigEndian.AppendUint32(welcome, uint32(session.Milliseconds()))
	welcome = binary.BigEndian.AppendUint64(welcome, 7)
	welcome = binary.BigEndian.AppendUint32(welcome, 16)
	welcome = append(welcome, make([]byte, 16)...)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	k, err := Dial(Options{Servers: listener.Addr().String(), Session: session, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range [][]byte{nil, welcome[:4], welcome} {
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(most)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(says); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil {
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				t.Errorf("a server that sends %d bytes of %d is not abandoned within %v", len(says), len(welcome), most)
			}
		}
		conn.Close()
	}
	if id := k.SessionID(); id != 7 {
		t.Errorf("session %d", id)
	}
	k.Close()
}
