package zkclient

import (
	"encoding/binary"
	"net"
	"time"
)

// handshake is the beginning of the server's first message: its length, the protocol's
// version, and the session's length in milliseconds, four bytes each.
const handshakeBytes = 12

// handshakeTime is what a server has for the handshake if the session is not much longer:
// its ensemble has to agree on a new session.
const handshakeTime = 2 * time.Second

// listened is a connection whose handshake is read on its way to the library, and whose
// server is left early. The library waits two thirds of a session for a server that hangs,
// which is all of a leader's word, and over six sessions for one that hangs in the handshake.
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
		_ = l.client.connectFailed(l.address, err, handshakeHint(err, l.secure)) // it is the library's to end it
	}
	return n, err
}

// SetReadDeadline is net.Conn's, but no later than the server is waited for.
func (l *handshakeConn) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		if l.received < handshakeBytes {
			return nil // the library takes it away when it has the first four bytes
		}
		return l.Conn.SetReadDeadline(t)
	}
	if most := time.Now().Add(l.readTimeout()); t.After(most) {
		t = most
	}
	return l.Conn.SetReadDeadline(t)
}

// patience is how long the server may say nothing. The library has it answer each third of
// the session that it gave, which may be longer than the one asked for.
func (l *handshakeConn) readTimeout() time.Duration {
	session := l.client.Session()
	if l.received < handshakeBytes {
		return max(session/2, min(session, handshakeTime))
	}
	return max(session/2, time.Duration(l.client.granted.Load())*5/12)
}

// sessionOf is the session's length; false while the handshake is not whole, or if the
// server refuses the session.
func parseSession(first []byte) (time.Duration, bool) {
	if len(first) < handshakeBytes {
		return 0, false
	}
	ms := int32(binary.BigEndian.Uint32(first[8:]))
	return time.Duration(ms) * time.Millisecond, ms > 0
}
