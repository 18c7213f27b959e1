package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Router sets up the bridge's namespace as a container engine sets up its host: the bridge has an address,
// forwards packets, and is each machine's gateway. It returns the namespace as a machine; its links cannot be cut.
func (w *Network) Router() (*Machine, error) {
	m := w.bridge
	if m.Address.IsValid() {
		return m, nil
	}
	link, err := m.links.LinkByName("bridge")
	if err != nil {
		return nil, err
	}
	ip := w.prefix.Addr().As4()
	ip[3] = 254
	if err := m.links.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: ip[:], Mask: net.CIDRMask(w.prefix.Bits(), 32)}}); err != nil {
		return nil, fmt.Errorf("address of the bridge: %w", err)
	}
	err = m.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) // that of the thread's namespace
	})
	if err != nil {
		return nil, fmt.Errorf("let the bridge forward packets: %w", err)
	}
	for _, c := range w.Machines {
		if err := c.links.RouteAdd(&netlink.Route{Gw: ip[:]}); err != nil {
			return nil, fmt.Errorf("gateway of %s: %w", c.Name, err)
		}
	}
	m.Address = netip.AddrFrom4(ip)
	return m, nil
}

// filterBridge is missing in a kernel without br_netfilter. Since Linux 5.3, each namespace has its own.
const filterBridge = "/proc/sys/net/bridge/bridge-nf-call-iptables"

// PassToRules makes the bridge pass the packets between its machines to the router's rules, as container engines do;
// they are masqueraded, too. It returns false if the kernel cannot do this (br_netfilter is missing).
func (m *Machine) PassToRules() (bool, error) {
	err := m.Do(func() error { return os.WriteFile(filterBridge, []byte("1"), 0) })
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("let the bridge pass packets to rules: %w", err)
	}
	return true, nil
}

// The parts of nftables (include/uapi/linux/netfilter/nf_tables.h) that the rules below need. The laboratory
// needs no program nft for them.
const (
	batchBegin, batchEnd               = 0x10, 0x11
	newTable, delTable                 = 0, 2
	newChain, newRule                  = 3, 6
	familyIP, familyBridge             = 2, 7
	hookPrerouting, hookForward        = 0, 2
	hookPostrouting                    = 4
	destinationNAT                     = 1
	baseNetwork, baseTransport         = 1, 2
	register1, register2               = 1, 2
	nestedAttribute                    = 1 << 15
	verdictDrop                 uint32 = 0
)

type attributes []byte

func (a attributes) add(kind uint16, value []byte) attributes {
	a = binary.NativeEndian.AppendUint16(a, uint16(4+len(value)))
	a = append(binary.NativeEndian.AppendUint16(a, kind), value...)
	for len(a)%4 != 0 {
		a = append(a, 0)
	}
	return a
}

func (a attributes) text(kind uint16, s string) attributes { return a.add(kind, append([]byte(s), 0)) }

func (a attributes) number(kind uint16, n uint32) attributes {
	return a.add(kind, binary.BigEndian.AppendUint32(nil, n))
}

func (a attributes) nest(kind uint16, inner attributes) attributes {
	return a.add(kind|nestedAttribute, inner)
}

func expression(name string, data attributes) attributes {
	return attributes{}.nest(1, attributes{}.text(1, name).nest(2, data))
}

// matches compares a field of the packet.
func matches(base, offset uint32, value []byte) attributes {
	load := attributes{}.number(1, register1).number(2, base).number(3, offset).number(4, uint32(len(value)))
	compare := attributes{}.number(1, register1).number(2, 0).nest(3, attributes{}.add(1, value))
	return append(expression("payload", load), expression("cmp", compare)...)
}

func immediate(register uint32, value []byte) attributes {
	return expression("immediate", attributes{}.number(1, register).nest(2, attributes{}.add(1, value)))
}

func drop() attributes {
	verdict := attributes{}.nest(2, attributes{}.number(1, verdictDrop))
	return expression("immediate", attributes{}.number(1, 0).nest(2, verdict))
}

type ruleMessage struct {
	kind   uint16
	flags  uint16
	family byte
	body   attributes
}

// chain returns the messages that make a table with one chain and its rules.
func chain(table string, family byte, kind string, hook uint32, priority int32, rules ...attributes) []ruleMessage {
	const create = unix.NLM_F_CREATE
	all := []ruleMessage{
		{newTable, create, family, attributes{}.text(1, table)},
		{newChain, create, family, attributes{}.text(1, table).text(3, "chain").
			nest(4, attributes{}.number(1, hook).number(2, uint32(priority))).text(7, kind)},
	}
	for _, r := range rules {
		all = append(all, ruleMessage{newRule, create | unix.NLM_F_APPEND, family, attributes{}.text(1, table).text(2, "chain").nest(4, r)})
	}
	return all
}

// Masquerade gives packets that the router forwards its own address.
func (m *Machine) Masquerade() error {
	return m.change(chain("masquerade", familyIP, "nat", hookPostrouting, 100, expression("masq", nil)))
}

// Publish sends connections to a port of the router to another address.
func (m *Machine) Publish(port uint16, to netip.AddrPort) error {
	rule := matches(baseNetwork, 16, m.Address.AsSlice())
	rule = append(rule, matches(baseNetwork, 9, []byte{unix.IPPROTO_TCP})...)
	rule = append(rule, matches(baseTransport, 2, binary.BigEndian.AppendUint16(nil, port))...)
	rule = append(rule, immediate(register1, to.Addr().AsSlice())...)
	rule = append(rule, immediate(register2, binary.BigEndian.AppendUint16(nil, to.Port()))...)
	rule = append(rule, expression("nat", attributes{}.number(1, destinationNAT).number(2, familyIP).number(3, register1).number(5, register2))...)
	return m.change(chain(fmt.Sprintf("publish%d", port), familyIP, "nat", hookPrerouting, -100, rule))
}

// Drop makes the bridge drop all packets between its machines, until Undrop.
func (m *Machine) Drop() error {
	return m.change(chain("drop", familyBridge, "filter", hookForward, 0, drop()))
}

// Undrop undoes Drop.
func (m *Machine) Undrop() error {
	return m.change([]ruleMessage{{delTable, 0, familyBridge, attributes{}.text(1, "drop")}})
}

// change changes the rules of the machine's namespace by one transaction.
func (m *Machine) change(messages []ruleMessage) error {
	var batch []byte
	add := func(kind, flags uint16, body []byte) {
		batch = binary.NativeEndian.AppendUint32(batch, uint32(16+len(body)))
		batch = binary.NativeEndian.AppendUint16(batch, kind)
		batch = binary.NativeEndian.AppendUint16(batch, unix.NLM_F_REQUEST|flags)
		batch = binary.NativeEndian.AppendUint32(batch, uint32(len(batch))) // the number of the message
		batch = append(binary.NativeEndian.AppendUint32(batch, 0), body...)
	}
	subsystem := []byte{0, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
	add(batchBegin, 0, subsystem)
	for _, r := range messages {
		add(unix.NFNL_SUBSYS_NFTABLES<<8|r.kind, r.flags|unix.NLM_F_ACK, append([]byte{r.family, unix.NFNETLINK_V0, 0, 0}, r.body...))
	}
	add(batchEnd, 0, subsystem)
	err := m.Do(func() error { return transact(batch, len(messages)) })
	if err != nil {
		return fmt.Errorf("change the rules of %s (nftables): %w", m.Name, err)
	}
	return nil
}

func transact(batch []byte, answers int) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	limit := unix.Timeval{Sec: 5}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return err
	}
	if err := unix.Sendto(fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buffer := make([]byte, 1<<16)
	var errs []error
	for answers > 0 {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for rest := buffer[:n]; len(rest) >= 20; {
			length := int(binary.NativeEndian.Uint32(rest))
			if length < 20 || length > len(rest) {
				return fmt.Errorf("an answer of %d bytes", length)
			}
			if binary.NativeEndian.Uint16(rest[4:]) == unix.NLMSG_ERROR {
				answers--
				if code := int32(binary.NativeEndian.Uint32(rest[16:])); code != 0 {
					errs = append(errs, unix.Errno(-code))
				}
			}
			rest = rest[min((length+3)&^3, len(rest)):]
		}
	}
	return errors.Join(errs...)
}
