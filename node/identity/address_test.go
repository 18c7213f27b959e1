package identity

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// hexAddress prints an end as the kernel does; mapped reports whether an IPv4 address belongs to
// an IPv6 socket.
func hexAddress(a netip.AddrPort, mapped bool) string {
	raw := a.Addr().AsSlice()
	if a.Addr().Is4() && mapped {
		b := a.Addr().As16()
		raw = b[:]
	}
	s := ""
	for i := 0; i < len(raw); i += 4 {
		s += fmt.Sprintf("%08X", binary.NativeEndian.Uint32(raw[i:]))
	}
	return s + fmt.Sprintf(":%04X", a.Port())
}

func TestAddresses(t *testing.T) {
	for s, want := range map[string]string{
		"127.0.0.1:8020":               "127.0.0.1:8020",
		"/127.0.0.1:8020":              "127.0.0.1:8020",
		"node-7/10.0.0.7:50010":        "10.0.0.7:50010",
		"[::1]:80":                     "[::1]:80",
		"0:0:0:0:0:0:0:1:80":           "[::1]:80",
		"[fe80::1%eth0]:80":            "[fe80::1]:80",
		"fe80:0:0:0:0:0:0:1%2:80":      "[fe80::1]:80",
		"[::ffff:10.0.0.7]:50010":      "10.0.0.7:50010",
		"::ffff:10.0.0.7:50010":        "10.0.0.7:50010",
		"":                             "",
		"10.0.0.7":                     "",
		"10.0.0.7:":                    "",
		"10.0.0.7:0":                   "",
		"10.0.0.7:65536":               "",
		"10.0.0.7:+1":                  "",
		"node-7:50010":                 "",
		"10.0.0.256:1":                 "",
		"[10.0.0.7:50010":              "",
		"127.0.0.1:8020/10.0.0.7:8020": "10.0.0.7:8020",
	} {
		got, err := parseAddress(s)
		if want == "" && err == nil || want != "" && (err != nil || got.String() != want) {
			t.Errorf("%q: %v, %v, want %q", s, got, err, want)
		}
	}
}

// These rows are as a little-endian kernel prints them.
const (
	heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
	row4    = "   1: 0100007F:B085 0200007F:1F54 01 00000000:00000000 00:00000000 00000000  1000        0 25632235 1 000000005a8bbaf6 20 4 30 10 -1"
	row6    = "   0: 0000000000000000FFFF00000100007F:9C4A 0000000000000000FFFF00000100007F:26B2 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 20 4 0 10 -1"
)

func TestSockets(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		want := socket{netip.MustParseAddrPort("127.0.0.1:45189"), netip.MustParseAddrPort("127.0.0.2:8020"), 1000, 25632235}
		if got, ok := parseSocket([]byte(row4)); !ok || got != want {
			t.Errorf("%+v, %v", got, ok)
		}
		want = socket{netip.MustParseAddrPort("127.0.0.1:40010"), netip.MustParseAddrPort("127.0.0.1:9906"), 0, 4711}
		if got, ok := parseSocket([]byte(row6)); !ok || got != want {
			t.Errorf("%+v, %v", got, ok)
		}
	}
	for _, bad := range []string{
		heading, "", "   ", row4[:60], "1: 0100007F 0200007F:1F54 01 0 0 0 0 0 5", "1: 0100007F:B085 0200007F:1F54 01 0 0 0 -1 0 5",
		"1: 0100007F:B085 0200007F:1F54 01 0 0 0 0 0 5x", "1: 0100007:B085 0200007F:1F54 01 0 0 0 0 0 5",
		"1: 010000ZF:B085 0200007F:1F54 01 0 0 0 0 0 5", "1: 0100007F:B085 0200007F:1F5 01 0 0 0 0 0 5",
	} {
		if got, ok := parseSocket([]byte(bad)); ok {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

func TestEverySocketIsRead(t *testing.T) {
	end := func(t *rapid.T, name string) netip.AddrPort {
		raw := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name)
		addr := netip.AddrFrom16([16]byte(raw)).Unmap()
		if rapid.Bool().Draw(t, name+" is IPv4") {
			addr = netip.AddrFrom4([4]byte(raw[:4]))
		}
		return netip.AddrPortFrom(addr, uint16(rapid.IntRange(1, 65535).Draw(t, name+" port")))
	}
	rapid.Check(t, func(t *rapid.T) {
		want := socket{end(t, "local"), end(t, "remote"), rapid.Uint32().Draw(t, "uid"), rapid.Uint64().Draw(t, "inode")}
		mapped := rapid.Bool().Draw(t, "mapped")
		line := fmt.Sprintf("%4d: %s %s 01 00000000:00000000 00:00000000 00000000 %5d        0 %d 1 0 20 4 30 10 -1",
			rapid.IntRange(0, 99999).Draw(t, "sl"), hexAddress(want.local, mapped), hexAddress(want.remote, mapped), want.uid, want.inode)
		if got, ok := parseSocket([]byte(line)); !ok || got != want {
			t.Fatalf("%s: %+v, %v, want %+v", line, got, ok, want)
		}
		if got, err := parseAddress(want.local.String()); err != nil || got != want.local {
			t.Fatalf("%s: %v, %v", want.local, got, err)
		}
	})
}

func FuzzAddress(f *testing.F) {
	for _, s := range []string{"127.0.0.1:80", "[::1]:80", "a/::ffff:1.2.3.4:5", "fe80::1%x:1", ":1", "::1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseAddress(s)
		if err != nil {
			return
		}
		if !a.IsValid() || a.Port() == 0 || a.Addr().Is4In6() || a.Addr().Zone() != "" {
			t.Errorf("%q became %v", s, a)
		}
		if again, err := parseAddress(a.String()); err != nil || again != a {
			t.Errorf("%q became %v, and that %v, %v", s, a, again, err)
		}
	})
}

func FuzzSocket(f *testing.F) {
	for _, s := range []string{heading, row4, row6, "socket:[123]", "socket:[]", "socket:[18446744073709551616]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := parseSocket(b); ok && (!s.local.IsValid() || !s.remote.IsValid() || s.local.Addr().Is4In6()) {
			t.Errorf("%q became %+v", b, s)
		}
		if n := socketInode(b); n != 0 && string(b) != fmt.Sprintf("socket:[%d]", n) && b[len("socket:[")] != '0' && b[len("socket:[")] != '+' {
			t.Errorf("%q became %d", b, n)
		}
	})
}
