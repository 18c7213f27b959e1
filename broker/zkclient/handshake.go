package zkclient

import (
	"encoding/binary"
	"net"
	"time"
)

// handshakeBytes is the size of the first fields of the server's first message: length, protocol
// version and session timeout in milliseconds, four bytes each.
const handshakeBytes = 12

// handshakeTime is the least time that a server has for the handshake, unless the session is
// shorter. The ensemble has to agree on a new session during the handshake.
const handshakeTime = 2 * time.Second

// handshakeConn is a connection that reads the server's handshake as it passes, and limits read
// deadlines. Without this limit, the library would wait two thirds of a session, which is a
// leader's whole lease, for a server that hangs, and over six sessions for a server that hangs in
// the handshake.
type handshakeConn struct {
	net.Conn
	client   *Client
	address  string
	secure   bool
	prefix   [handshakeBytes]byte
	received int
}

func (l *handshakeConn) Read(into []byte) (int, error) {
	n, err := l.Conn.Read(into)
	if l.received < handshakeBytes && n > 0 {
		l.received += copy(l.prefix[l.received:], into[:n])
		if given, ok := parseSession(l.prefix[:l.received]); ok {
			l.client.sessionGranted(l.address, given)
		}
	}
	if err != nil && l.received < handshakeBytes {
		_ = l.client.connectFailed(l.address, err, handshakeHint(err, l.secure)) // the library closes the connection
	}
	return n, err
}

// SetReadDeadline implements net.Conn. Deadlines beyond readTimeout are brought forward.
func (l *handshakeConn) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		if l.received < handshakeBytes {
			return nil // too early: the library clears the deadline after the first four bytes
		}
		return l.Conn.SetReadDeadline(t)
	}
	if most := time.Now().Add(l.readTimeout()); t.After(most) {
		t = most
	}
	return l.Conn.SetReadDeadline(t)
}

// readTimeout returns how long the server may be silent. The library pings it three times in a
// granted session, which may be longer than the requested one.
func (l *handshakeConn) readTimeout() time.Duration {
	session := l.client.Session()
	if l.received < handshakeBytes {
		return max(session/2, min(session, handshakeTime))
	}
	return max(session/2, time.Duration(l.client.granted.Load())*5/12)
}

// parseSession returns the session's length. ok is false while the handshake is incomplete, or if
// the server refuses the session.
func parseSession(first []byte) (time.Duration, bool) {
	if len(first) < handshakeBytes {
		return 0, false
	}
	ms := int32(binary.BigEndian.Uint32(first[8:]))
	return time.Duration(ms) * time.Millisecond, ms > 0
}
