package identity

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"penstock/node/monitor/owner"
)

// parseAddress reads an ip:port in the forms that agents write: with or without brackets, and as
// Java prints an address, with a slash and perhaps a name before it. It returns an IPv4 address
// mapped into IPv6 as IPv4, and drops a zone, since the result is compared with the kernel's
// tables.
func parseAddress(s string) (netip.AddrPort, error) {
	text := s[strings.LastIndexByte(s, '/')+1:]
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return netip.AddrPort{}, fmt.Errorf("address %q: no port", s)
	}
	ip, port := text[:colon], text[colon+1:]
	if strings.HasPrefix(ip, "[") && strings.HasSuffix(ip, "]") {
		ip = ip[1 : len(ip)-1]
	}
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %q: %w", s, err)
	}
	if !owner.Digits(port, 1, 5) {
		return netip.AddrPort{}, fmt.Errorf("address %q: no port", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return netip.AddrPort{}, fmt.Errorf("address %q: no port", s)
	}
	return netip.AddrPortFrom(addr.Unmap().WithZone(""), uint16(n)), nil
}

// socket is a row of /proc/net/tcp or tcp6.
type socket struct {
	local, remote netip.AddrPort
	uid           uint32
	inode         uint64 // 0 if no process has it any more
}

// parseSocket reads one row; false for the heading and for lines that are not rows.
func parseSocket(line []byte) (s socket, ok bool) {
	// sl local remote state queues timer retransmits uid timeout inode ...
	var fields [10][]byte
	for i := range fields {
		line = bytes.TrimLeft(line, " ")
		end := bytes.IndexByte(line, ' ')
		if end < 0 {
			end = len(line)
		}
		if end == 0 {
			return socket{}, false
		}
		fields[i], line = line[:end], line[end:]
	}
	uid, err := strconv.ParseUint(string(fields[7]), 10, 32)
	if err != nil {
		return socket{}, false
	}
	inode, err := strconv.ParseUint(string(fields[9]), 10, 64)
	if err != nil {
		return socket{}, false
	}
	local, ok1 := parseHexAddress(fields[1])
	remote, ok2 := parseHexAddress(fields[2])
	return socket{local, remote, uint32(uid), inode}, ok1 && ok2
}

// parseHexAddress reads the form of the kernel's tables: the address as 32-bit words in
// hexadecimal, each in the machine's byte order, then the port.
func parseHexAddress(b []byte) (netip.AddrPort, bool) {
	words, port, ok := bytes.Cut(b, []byte{':'})
	if !ok || len(port) != 4 || len(words) != 8 && len(words) != 32 {
		return netip.AddrPort{}, false
	}
	var p [2]byte
	var raw, ip [16]byte
	n := len(words) / 2
	if _, err := hex.Decode(p[:], port); err != nil {
		return netip.AddrPort{}, false
	}
	if _, err := hex.Decode(raw[:], words); err != nil {
		return netip.AddrPort{}, false
	}
	for i := 0; i < n; i += 4 {
		// The kernel prints a number in the machine's order; its bytes are in network order.
		binary.NativeEndian.PutUint32(ip[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, _ := netip.AddrFromSlice(ip[:n])
	return netip.AddrPortFrom(addr.Unmap(), binary.BigEndian.Uint16(p[:])), true
}

// socketInode reads the link of a descriptor, socket:[INODE]; 0 if it is not a socket.
func socketInode(link []byte) uint64 {
	rest, ok := bytes.CutPrefix(link, []byte("socket:["))
	if !ok || !bytes.HasSuffix(rest, []byte("]")) {
		return 0
	}
	n, err := strconv.ParseUint(string(rest[:len(rest)-1]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
