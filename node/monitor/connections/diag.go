package connections

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Socket is the server's end of an established connection, as the kernel describes it.
type Socket struct {
	Server, Client netip.AddrPort // IPv4 addresses also if the socket is one of IPv6
	Sent           int64          // bytes that the client has acknowledged
	Received       int64          // bytes
	RTT            time.Duration  // smoothed round trip time
	Pacing         uint64         // bytes per second at which the kernel sends; MaxUint64: without pacing
	Inode          uint64         // of the socket, as in /proc/PID/fd; 0 if no process has the socket open
	// Cookie identifies the socket, also to package join, which counts the bytes that bypass TCP.
	Cookie uint64
}

// Layout of the kernel's messages (include/uapi/linux/inet_diag.h). Ports and addresses are in
// network byte order, everything else in the machine's.
const (
	requestSize    = 56 // struct inet_diag_req_v2
	messageSize    = 72 // struct inet_diag_msg
	stateAt        = 1
	localPortAt    = 4
	remotePortAt   = 6
	localAt        = 8
	remoteAt       = 24
	cookieAt       = 44
	inodeAt        = 68
	attrRequest    = 1   // INET_DIAG_REQ_BYTECODE, of a request
	attrInfo       = 2   // INET_DIAG_INFO, of an answer
	tcpEstablished = 1   // TCP_ESTABLISHED
	localPortIs    = 11  // INET_DIAG_BC_S_EQ
	remotePortIs   = 12  // INET_DIAG_BC_D_EQ
	codeSize       = 4   // struct inet_diag_bc_op
	rttAt          = 68  // in struct tcp_info, microseconds
	pacingAt       = 104 // tcpi_pacing_rate
	acknowledged   = 120 // tcpi_bytes_acked
	received       = 128 // tcpi_bytes_received
	infoSizeLeast  = 136
)

// sockets calls take for each established connection to a local port, until take returns false. It
// needs no privileges. It sees the network namespace of this process.
func sockets(port uint16, take func(Socket) bool) error { return established(localPortIs, port, take) }

// Clients calls take for each established connection from this machine to a port, here or elsewhere, until
// take returns false. The figures and the inode are those of the client's socket.
func Clients(port uint16, take func(Socket) bool) error {
	return established(remotePortIs, port, func(s Socket) bool {
		s.Server, s.Client = s.Client, s.Server
		return take(s)
	})
}

func established(which byte, port uint16, take func(Socket) bool) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		r := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		r.AddRawData(request(family, which, port))
		stopped := false
		var mistake error
		err := r.ExecuteIter(unix.NETLINK_INET_DIAG, 0, func(message []byte) bool {
			s, ok, err := parse(message)
			if err != nil {
				mistake = err
				return false
			}
			stopped = ok && !take(s)
			return !stopped
		})
		if err := errors.Join(err, mistake); err != nil {
			return fmt.Errorf("connections to port %d from the kernel (inet_diag): %w", port, err)
		}
		if stopped {
			return nil
		}
	}
	return nil
}

// request returns the body of a request for the established connections whose port, the local or the
// remote one, is the given one. The kernel
// filters by a small program, so that the answer does not grow with other connections.
func request(family, which uint8, port uint16) []byte {
	b := make([]byte, requestSize)
	b[0], b[1], b[2] = family, unix.IPPROTO_TCP, 1<<(attrInfo-1)
	binary.NativeEndian.PutUint32(b[4:], 1<<tcpEstablished)
	// One instruction: if the port equals the value, go to the end, which accepts; else past
	// the end, which refuses. The value is in the second half of the instruction.
	const program = 2 * codeSize
	b = binary.NativeEndian.AppendUint16(b, unix.SizeofNlAttr+program)
	b = binary.NativeEndian.AppendUint16(b, attrRequest)
	b = append(b, which, program)
	b = binary.NativeEndian.AppendUint16(b, program+codeSize)
	b = append(b, 0, 0)
	return binary.NativeEndian.AppendUint16(b, port)
}

// parse reads one answer. ok is false if it says nothing about an established connection.
func parse(m []byte) (s Socket, ok bool, err error) {
	if len(m) < messageSize {
		return Socket{}, false, fmt.Errorf("an answer of %d bytes, want at least %d", len(m), messageSize)
	}
	if m[stateAt] != tcpEstablished {
		return Socket{}, false, nil
	}
	s = Socket{Server: endOf(m, localAt, localPortAt), Client: endOf(m, remoteAt, remotePortAt),
		Cookie: binary.NativeEndian.Uint64(m[cookieAt:]), Inode: uint64(binary.NativeEndian.Uint32(m[inodeAt:]))}
	for rest := m[messageSize:]; len(rest) >= unix.SizeofNlAttr; {
		length, kind := int(binary.NativeEndian.Uint16(rest)), binary.NativeEndian.Uint16(rest[2:])
		if length < unix.SizeofNlAttr || length > len(rest) {
			return Socket{}, false, fmt.Errorf("an attribute of %d bytes in an answer with %d left", length, len(rest))
		}
		if value := rest[unix.SizeofNlAttr:length]; kind == attrInfo && len(value) >= infoSizeLeast {
			s.RTT = time.Duration(binary.NativeEndian.Uint32(value[rttAt:])) * time.Microsecond
			s.Pacing = binary.NativeEndian.Uint64(value[pacingAt:])
			s.Sent = int64(binary.NativeEndian.Uint64(value[acknowledged:]))
			s.Received = int64(binary.NativeEndian.Uint64(value[received:]))
			ok = true
		}
		rest = rest[min((length+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(rest)):]
	}
	return s, ok && s.Sent >= 0 && s.Received >= 0, nil
}

// endOf returns one end of the connection that an answer describes.
func endOf(m []byte, at, portAt int) netip.AddrPort {
	port := binary.BigEndian.Uint16(m[portAt:])
	if m[0] == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(m[at:at+4])), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(m[at:at+16])).Unmap(), port)
}
