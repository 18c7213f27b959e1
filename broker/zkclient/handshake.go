package zkclient

import (
	"encoding/binary"
	"net"
	"time"
)

// handshake is the beginning of the server's first message: its length, the protocol's
// version, and the session's length in milliseconds, four bytes each.
const handshake = 12

// handshakeTime is what a server has for the handshake if the session is not much longer:
// its ensemble has to agree on a new session.
const handshakeTime = 2 * time.Second

// listened is a connection whose handshake is read on its way to the library, and whose
// server is left early. The library waits two thirds of a session for a server that hangs,
// which is all of a leader's word, and over six sessions for one that hangs in the handshake.
type listened struct {
	net.Conn
	client  *Client
	address string
	secure  bool
	first   [handshake]byte
	have    int
}

func (l *listened) Read(into []byte) (int, error) {
	n, err := l.Conn.Read(into)
	if l.have < handshake && n > 0 {
		l.have += copy(l.first[l.have:], into[:n])
		if given, ok := sessionOf(l.first[:l.have]); ok {
			l.client.heard(l.address, given)
		}
	}
	if err != nil && l.have < handshake {
		_ = l.client.failed(l.address, err, whyNoHandshake(err, l.secure)) // it is the library's to end it
	}
	return n, err
}

// SetReadDeadline is net.Conn's, but no later than the server is waited for.
func (l *listened) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		if l.have < handshake {
			return nil // the library takes it away when it has the first four bytes
		}
		return l.Conn.SetReadDeadline(t)
	}
	if most := time.Now().Add(l.patience()); t.After(most) {
		t = most
	}
	return l.Conn.SetReadDeadline(t)
}

// patience is how long the server may say nothing. The library has it answer each third of
// the session that it gave, which may be longer than the one asked for.
func (l *listened) patience() time.Duration {
	session := l.client.Session()
	if l.have < handshake {
		return max(session/2, min(session, handshakeTime))
	}
	return max(session/2, time.Duration(l.client.given.Load())*5/12)
}

// sessionOf is the session's length; false while the handshake is not whole, or if the
// server refuses the session.
func sessionOf(first []byte) (time.Duration, bool) {
	if len(first) < handshake {
		return 0, false
	}
	ms := int32(binary.BigEndian.Uint32(first[8:]))
	return time.Duration(ms) * time.Millisecond, ms > 0
}
