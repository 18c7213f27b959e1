package connections

// Bypass has the bytes of a socket that TCP does not count, because they went straight from one socket to the other
// (package node/control/join). Counts never decrease while the socket is open.
type Bypass struct{ Sent, Received int64 }

// CountBypass makes the watch add what bypasses TCP to a connection's bytes. bypass is called at each Look and returns
// the bytes by the sockets' cookies. CountBypass must be called before the first Look.
func (w *Watch) CountBypass(bypass func() map[uint64]Bypass) {
	kernel := w.sockets
	w.sockets = func(port uint16, take func(Socket) bool) error {
		// The bytes are read before the kernel's figures, so a new connection is in neither or in the latter.
		all := bypass()
		return kernel(port, func(s Socket) bool {
			b := all[s.Cookie]
			s.Sent += b.Sent
			s.Received += b.Received
			return take(s)
		})
	}
}
