package broker

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// unknownUser is recorded as an operator's name if the user of the connection cannot be found.
const unknownUser = "local"

// localUser returns the user who holds one end of a connection on this machine, by name and number; both are empty if the
// user is not found. It looks this up in the kernel's tables of connections; folder is /proc/net except in tests.
func localUser(folder string, end netip.AddrPort) (name, uid string) {
	end = netip.AddrPortFrom(end.Addr().Unmap().WithZone(""), end.Port())
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(folder, table))
		if err != nil {
			continue
		}
		uid, found := findUID(f, end)
		f.Close()
		if !found {
			continue
		}
		if u, err := user.LookupId(uid); err == nil {
			return u.Username, uid
		}
		return "uid " + uid, uid
	}
	return "", ""
}

// findUID returns the uid from the row whose local address is end.
func findUID(table io.Reader, end netip.AddrPort) (uid string, found bool) {
	const largest = 64 << 20 // bytes of a table, enough for some 400,000 connections
	rows := bufio.NewScanner(io.LimitReader(table, largest))
	for rows.Scan() {
		// sl local remote state queues timer retransmits uid ...
		if f := strings.Fields(rows.Text()); len(f) > 7 && kernelAddress(f[1]) == end {
			if _, err := strconv.ParseUint(f[7], 10, 32); err == nil {
				return f[7], true
			}
		}
	}
	return "", false
}

// kernelAddress parses an address of the table: the IP address as words of 32 bits in hexadecimal,
// each in the machine's byte order, then a colon and the port.
func kernelAddress(s string) netip.AddrPort {
	words, port, _ := strings.Cut(s, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	raw, err2 := hex.DecodeString(words)
	if err != nil || err2 != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	ip, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(ip.Unmap(), uint16(n))
}
