package join

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// rules notices changes of the rules for packets in one network namespace. The kernel announces those of
// nftables (also if they are made by iptables-nft) and of queueing disciplines and their filters. Those of the
// older iptables are found by comparison.
type rules struct {
	tables, traffic *nl.NetlinkSocket
	wake            int // an eventfd that ends wait
	old             []*oldTables
}

// oldTables are the tables of iptables or ip6tables.
type oldTables struct {
	name   string
	names  *os.File // their names; stays open, because a later open may be in another namespace
	socket int
	level  int
	sum    uint64
}

const (
	groupTables  = 7 // NFNLGRP_NFTABLES
	groupTraffic = 4 // RTNLGRP_TC

	ruleset = "the ruleset of nftables changed"
	shaping = "queueing disciplines or filters of an interface changed"

	// From include/uapi/linux/netfilter_ipv4/ip_tables.h and its twin for IPv6.
	getInfo     = 64 // IPT_SO_GET_INFO, IP6T_SO_GET_INFO
	getEntries  = 65
	tableName   = 32
	infoSize    = 84 // struct ipt_getinfo
	infoSizeAt  = 80 // its field size
	entriesHead = 40 // struct ipt_get_entries, without its entries
	maxEntries  = 64 << 20
)

func openRules() (_ *rules, err error) {
	r := &rules{wake: -1}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("watch the rules for packets: %w", err), r.close())
		}
	}()
	if r.tables, err = nl.Subscribe(unix.NETLINK_NETFILTER, groupTables); err != nil {
		return nil, err
	}
	if r.traffic, err = nl.Subscribe(unix.NETLINK_ROUTE, groupTraffic); err != nil {
		return nil, err
	}
	if r.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return nil, err
	}
	for _, k := range []struct {
		name, names   string
		family, level int
	}{
		{"iptables", "/proc/thread-self/net/ip_tables_names", unix.AF_INET, unix.SOL_IP},
		{"ip6tables", "/proc/thread-self/net/ip6_tables_names", unix.AF_INET6, unix.SOL_IPV6},
	} {
		names, err := os.Open(k.names)
		if errors.Is(err, os.ErrNotExist) {
			continue // the kernel has none
		}
		if err != nil {
			return nil, err
		}
		t := &oldTables{name: k.name, names: names, socket: -1, level: k.level}
		r.old = append(r.old, t)
		if t.socket, err = unix.Socket(k.family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			return nil, err
		}
		if t.sum, err = t.fingerprint(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// wait waits for a change that the kernel announces, and returns what has changed. It fails after interrupt.
func (r *rules) wait() (string, error) {
	sockets := []unix.PollFd{{Fd: int32(r.wake), Events: unix.POLLIN}, {Fd: int32(r.tables.GetFd()), Events: unix.POLLIN}, {Fd: int32(r.traffic.GetFd()), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(sockets, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("wait for changes of the rules: %w", err)
		}
		switch {
		case sockets[0].Revents != 0:
			return "", os.ErrClosed
		case sockets[1].Revents != 0:
			return ruleset, drainSocket(r.tables.GetFd())
		case sockets[2].Revents != 0:
			return shaping, drainSocket(r.traffic.GetFd())
		}
	}
}

// drainSocket reads all messages that have arrived. Their content does not matter, nor whether some were lost.
func drainSocket(fd int) error {
	buffer := make([]byte, 1<<16)
	for {
		_, _, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("read a change of the rules: %w", err)
		}
	}
}

// interrupt ends wait.
func (r *rules) interrupt() {
	unix.Write(r.wake, binary.NativeEndian.AppendUint64(nil, 1))
}

// poll reports which rules have changed that the kernel does not announce; "" if none.
func (r *rules) poll() (string, error) {
	changed := ""
	for _, t := range r.old {
		sum, err := t.fingerprint()
		if err != nil {
			return "", err
		}
		if sum != t.sum {
			t.sum, changed = sum, "the rules of "+t.name+" changed"
		}
	}
	return changed, nil
}

// harmless are the queueing disciplines that hold no packet back to keep to a rate.
var harmless = []string{"noqueue", "pfifo_fast", "pfifo", "bfifo", "fq", "fq_codel", "mq", "prio", "sfq", "ingress", "clsact"}

// virtual are the kinds of interfaces that packets between containers of one machine pass.
var virtual = []string{"veth", "bridge", "ifb", "macvlan", "ipvlan", "macvtap"}

// limited returns an interface whose queueing discipline limits containers, as a network plug-in sets it for a
// container's bandwidth; "" if there is none. Joined connections would bypass the limit.
func limited(links *netlink.Handle) (string, error) {
	all, err := links.LinkList()
	if err != nil {
		return "", fmt.Errorf("list the interfaces: %w", err)
	}
	names := map[int]string{}
	for _, l := range all {
		if slices.Contains(virtual, l.Type()) {
			names[l.Attrs().Index] = l.Attrs().Name
		}
	}
	disciplines, err := links.QdiscList(nil)
	if err != nil {
		return "", fmt.Errorf("list the queueing disciplines: %w", err)
	}
	for _, q := range disciplines {
		if name, is := names[q.Attrs().LinkIndex]; is && !slices.Contains(harmless, q.Type()) {
			return fmt.Sprintf("the interface %s has the queueing discipline %s, which joined connections would bypass", name, q.Type()), nil
		}
	}
	return "", nil
}

// fingerprint returns a checksum of all tables, without their counters.
func (t *oldTables) fingerprint() (uint64, error) {
	if _, err := t.names.Seek(0, 0); err != nil {
		return 0, err
	}
	// The kernel makes a table when a process reads it, so rules reads only tables that exist.
	text := make([]byte, 4096)
	n, err := t.names.Read(text)
	if err != nil && n < 0 {
		return 0, err
	}
	sum := fnv.New64a()
	for _, name := range strings.Fields(string(text[:max(n, 0)])) {
		if len(name) >= tableName {
			continue
		}
		entries, err := t.entries(name)
		if err != nil {
			return 0, fmt.Errorf("read the table %s of %s: %w", name, t.name, err)
		}
		sum.Write([]byte(name))
		withoutCounters(entries, t.level == unix.SOL_IPV6)
		sum.Write(entries)
	}
	return sum.Sum64(), nil
}

func (t *oldTables) entries(name string) ([]byte, error) {
	for range 10 {
		info := make([]byte, infoSize)
		copy(info, name)
		if err := t.get(getInfo, info); err != nil {
			return nil, err
		}
		size := binary.NativeEndian.Uint32(info[infoSizeAt:])
		if size > maxEntries {
			return nil, fmt.Errorf("it has %d bytes, more than %d", size, maxEntries)
		}
		all := make([]byte, entriesHead+size)
		copy(all, name)
		binary.NativeEndian.PutUint32(all[tableName:], size)
		err := t.get(getEntries, all)
		if errors.Is(err, unix.EAGAIN) {
			time.Sleep(time.Millisecond)
			continue // it has changed in the meantime
		}
		return all[entriesHead:], err
	}
	return nil, errors.New("it changes all the time")
}

func (t *oldTables) get(option int, to []byte) error {
	size := uint32(len(to))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(t.socket), uintptr(t.level), uintptr(option),
		uintptr(unsafe.Pointer(&to[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// withoutCounters clears the counters of the entries of a table.
func withoutCounters(entries []byte, six bool) {
	const counters = 16 // bytes
	at, head := 96, 112 // of counters in struct ipt_entry, and its size
	next := 84 + 4 + 2  // of next_offset
	if six {
		at, head, next = 152, 168, 136+4+2
	}
	for len(entries) >= head {
		clear(entries[at : at+counters])
		length := int(binary.NativeEndian.Uint16(entries[next:]))
		if length < head || length > len(entries) {
			return
		}
		entries = entries[length:]
	}
}

func (r *rules) close() error {
	var errs []error
	for _, s := range []*nl.NetlinkSocket{r.tables, r.traffic} {
		if s != nil {
			s.Close()
		}
	}
	if r.wake >= 0 {
		errs = append(errs, unix.Close(r.wake))
	}
	for _, t := range r.old {
		errs = append(errs, t.names.Close())
		if t.socket >= 0 {
			errs = append(errs, unix.Close(t.socket))
		}
	}
	return errors.Join(errs...)
}
