package keeper

import (
	"encoding/binary"
	"net"
	"time"
)

// handshake is the beginning of the server's first message: its length, the protocol's
// version, and the session's length in milliseconds, four bytes each.
const handshake = 12

// listened is a connection whose handshake is read on its way to the library.
type listened struct {
	net.Conn
	keeper *Keeper
	first  [handshake]byte
	have   int
}

func (l *listened) Read(into []byte) (int, error) {
	n, err := l.Conn.Read(into)
	if l.have < handshake && n > 0 {
		l.have += copy(l.first[l.have:], into[:n])
		if given, ok := sessionOf(l.first[:l.have]); ok {
			l.keeper.heard(given)
		}
	}
	return n, err
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
