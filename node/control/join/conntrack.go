package join

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Parts of the kernel's table of connections (include/uapi/linux/netfilter/nfnetlink_conntrack.h).
const (
	genmsgSize = 4 // struct nfgenmsg
	getEntry   = unix.NFNL_SUBSYS_CTNETLINK<<8 | nl.IPCTNL_MSG_CT_GET
	nested     = 1 << 15 // NLA_F_NESTED
	typeMask   = 0x3fff  // NLA_TYPE_MASK

	tupleOriginal = 1
	tupleReply    = 2
	tupleIP       = 1
	tupleProtocol = 2
	ipv4Source    = 1
	ipv4To        = 2
	ipv6Source    = 3
	ipv6To        = 4
	protocolKind  = 1
	sourcePort    = 2
	toPort        = 3
)

// tuple is one direction of a connection.
type tuple struct{ from, to netip.AddrPort }

// table is the kernel's table of connections in one network namespace.
type table struct {
	mu      sync.Mutex
	sockets map[int]*nl.SocketHandle
}

func openTable() (*table, error) {
	socket, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("connect to the kernel's table of connections (ctnetlink): %w", err)
	}
	limit := unix.NsecToTimeval(int64(time.Second))
	if err := socket.SetReceiveTimeout(&limit); err != nil {
		socket.Close()
		return nil, err
	}
	return &table{sockets: map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: socket}}}, nil
}

func (t *table) close() { t.sockets[unix.NETLINK_NETFILTER].Socket.Close() }

// translates reports whether the kernel translates between the addresses of the two ends of a connection: its
// entry has the client's addresses in one direction and the server's in the other one.
func (t *table) translates(clientLocal, clientRemote, serverLocal, serverRemote netip.AddrPort) (bool, error) {
	family := uint8(unix.AF_INET)
	if clientLocal.Addr().Is6() {
		family = unix.AF_INET6
	}
	r := nl.NewNetlinkRequest(getEntry, unix.NLM_F_ACK)
	r.Sockets = t.sockets
	r.AddRawData(append([]byte{family, unix.NFNETLINK_V0, 0, 0}, encode(tuple{clientLocal, clientRemote})...))
	t.mu.Lock()
	answers, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	t.mu.Unlock()
	switch {
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find a connection in the kernel's table (ctnetlink): %w", err)
	}
	for _, a := range answers {
		original, reply, err := decode(a)
		if err != nil {
			return false, fmt.Errorf("an entry of the kernel's table of connections: %w", err)
		}
		if original == (tuple{clientLocal, clientRemote}) && reply == (tuple{serverLocal, serverRemote}) {
			return true, nil
		}
	}
	return false, nil
}

// attribute appends an attribute of netlink.
func attribute(to []byte, kind uint16, value []byte) []byte {
	to = binary.NativeEndian.AppendUint16(to, uint16(unix.SizeofNlAttr+len(value)))
	to = binary.NativeEndian.AppendUint16(to, kind)
	to = append(to, value...)
	for len(to)%unix.NLA_ALIGNTO != 0 {
		to = append(to, 0)
	}
	return to
}

// encode returns the attribute with the first direction of a TCP connection.
func encode(t tuple) []byte {
	source, to := uint16(ipv4Source), uint16(ipv4To)
	if t.from.Addr().Is6() {
		source, to = ipv6Source, ipv6To
	}
	ip := attribute(attribute(nil, source, t.from.Addr().AsSlice()), to, t.to.Addr().AsSlice())
	protocol := attribute(nil, protocolKind, []byte{unix.IPPROTO_TCP})
	protocol = attribute(protocol, sourcePort, binary.BigEndian.AppendUint16(nil, t.from.Port()))
	protocol = attribute(protocol, toPort, binary.BigEndian.AppendUint16(nil, t.to.Port()))
	return attribute(nil, tupleOriginal|nested, attribute(attribute(nil, tupleIP|nested, ip), tupleProtocol|nested, protocol))
}

// decode returns the two directions of an entry.
func decode(message []byte) (original, reply tuple, err error) {
	if len(message) < genmsgSize {
		return tuple{}, tuple{}, fmt.Errorf("%d bytes, want at least %d", len(message), genmsgSize)
	}
	err = attributes(message[genmsgSize:], func(kind uint16, value []byte) (err error) {
		switch kind {
		case tupleOriginal:
			original, err = decodeTuple(value)
		case tupleReply:
			reply, err = decodeTuple(value)
		}
		return err
	})
	return original, reply, err
}

func decodeTuple(b []byte) (t tuple, err error) {
	var from, to netip.Addr
	var fromPort, port uint16
	err = attributes(b, func(kind uint16, value []byte) error {
		switch kind {
		case tupleIP:
			return attributes(value, func(kind uint16, value []byte) error {
				a, ok := netip.AddrFromSlice(value)
				if !ok {
					return nil
				}
				switch kind {
				case ipv4Source, ipv6Source:
					from = a
				case ipv4To, ipv6To:
					to = a
				}
				return nil
			})
		case tupleProtocol:
			return attributes(value, func(kind uint16, value []byte) error {
				switch {
				case kind == protocolKind && (len(value) < 1 || value[0] != unix.IPPROTO_TCP):
					return errors.New("not a connection of TCP")
				case kind == sourcePort && len(value) >= 2:
					fromPort = binary.BigEndian.Uint16(value)
				case kind == toPort && len(value) >= 2:
					port = binary.BigEndian.Uint16(value)
				}
				return nil
			})
		}
		return nil
	})
	return tuple{netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, port)}, err
}

// attributes calls f for each attribute of netlink in b.
func attributes(b []byte, f func(kind uint16, value []byte) error) error {
	for len(b) >= unix.SizeofNlAttr {
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofNlAttr || length > len(b) {
			return fmt.Errorf("an attribute of %d bytes where %d are left", length, len(b))
		}
		if err := f(binary.NativeEndian.Uint16(b[2:])&typeMask, b[unix.SizeofNlAttr:length]); err != nil {
			return err
		}
		b = b[min((length+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(b)):]
	}
	return nil
}
