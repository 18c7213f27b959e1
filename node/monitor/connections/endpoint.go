package connections

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Endpoint is an established socket that a process has open.
type Endpoint struct {
	UID    uint32 // of the process that made the socket
	Inode  uint64 // as in /proc/PID/fd; not 0
	Cookie uint64 // no other socket has it until the machine is booted again
}

// ErrNoEndpoint is the error of Find if there is no such socket. Its process may have closed it, or it
// may be in another network namespace.
var ErrNoEndpoint = errors.New("no process of this network namespace has the socket open")

const uidAt = 64 // in struct inet_diag_msg

// Find returns the established TCP socket with these two ends, IPv4 addresses, of which local is its
// own. The kernel looks it up in a hash table, so other connections do not matter. Find needs no
// privileges. It sees the network namespace of this process.
func Find(local, remote netip.AddrPort) (Endpoint, error) {
	if !local.Addr().Is4() || !remote.Addr().Is4() {
		return Endpoint{}, fmt.Errorf("the connection %v to %v is not one of IPv4", local, remote)
	}
	r := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, 0)
	r.AddRawData(exactRequest(local, remote))
	answers, err := r.Execute(unix.NETLINK_INET_DIAG, 0)
	if errors.Is(err, unix.ENOENT) {
		return Endpoint{}, ErrNoEndpoint
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("ask the kernel for the socket %v to %v (inet_diag): %w", local, remote, err)
	}
	if len(answers) != 1 {
		return Endpoint{}, fmt.Errorf("ask the kernel for the socket %v to %v (inet_diag): %d answers", local, remote, len(answers))
	}
	return parseEndpoint(answers[0], local, remote)
}

// exactRequest returns the body of a request for one socket. A socket of IPv6 that is connected by IPv4 is
// in the kernel's table under its IPv4 addresses, so one request finds sockets of both kinds.
func exactRequest(local, remote netip.AddrPort) []byte {
	b := make([]byte, requestSize)
	b[0], b[1] = unix.AF_INET, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[4:], 1<<tcpEstablished)
	// struct inet_diag_sockid follows. In an answer it is four bytes nearer to the beginning.
	const by = 4
	binary.BigEndian.PutUint16(b[localPortAt+by:], local.Port())
	binary.BigEndian.PutUint16(b[remotePortAt+by:], remote.Port())
	copy(b[localAt+by:], local.Addr().AsSlice())
	copy(b[remoteAt+by:], remote.Addr().AsSlice())
	binary.NativeEndian.PutUint64(b[cookieAt+by:], ^uint64(0)) // any
	return b
}

// parseEndpoint reads the answer to an exactRequest. If the kernel finds no connection with these ends, it
// answers with a socket that listens at the local end; and a socket without a process is reported as
// root's, with inode 0. Neither is the wanted one.
func parseEndpoint(m []byte, local, remote netip.AddrPort) (Endpoint, error) {
	if len(m) < messageSize {
		return Endpoint{}, fmt.Errorf("an answer of %d bytes, want at least %d", len(m), messageSize)
	}
	e := Endpoint{UID: binary.NativeEndian.Uint32(m[uidAt:]), Inode: uint64(binary.NativeEndian.Uint32(m[inodeAt:])),
		Cookie: binary.NativeEndian.Uint64(m[cookieAt:])}
	if m[stateAt] != tcpEstablished || e.Inode == 0 || endOf(m, localAt, localPortAt) != local || endOf(m, remoteAt, remotePortAt) != remote {
		return Endpoint{}, ErrNoEndpoint
	}
	return e, nil
}
