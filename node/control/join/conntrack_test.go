package join

import (
	"net/netip"
	"testing"
)

func TestTableEntries(t *testing.T) {
	for _, want := range []tuple{
		{netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:65535")},
		{netip.MustParseAddrPort("[2001:db8::1]:1"), netip.MustParseAddrPort("[2001:db8::2]:2")},
	} {
		message := append(make([]byte, genmsgSize), encode(want)...)
		if got, reply, err := decode(message); err != nil || got != want || reply != (tuple{}) {
			t.Errorf("%v, %v, %v; want %v", got, reply, err, want)
		}
		for n := genmsgSize + 1; n < len(message); n++ {
			if got, _, err := decode(message[:n]); err == nil && got == want {
				t.Errorf("%d of %d bytes: %v", n, len(message), got)
			}
		}
	}
}

func FuzzTable(f *testing.F) {
	f.Add(append(make([]byte, genmsgSize), encode(tuple{netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2")})...))
	f.Add([]byte{0, 0, 0, 0, 4, 0, 1, 0})
	f.Fuzz(func(t *testing.T, message []byte) {
		if original, _, err := decode(message); err != nil && original.from.IsValid() && original.to.IsValid() && len(message) < genmsgSize {
			t.Errorf("%v, %v", original, err)
		}
	})
}

func TestTableOfReleases(t *testing.T) {
	for release, want := range map[string]bool{"6.12.99": false, "6.13.0-rc1": true, "6.18.44-fc": true, "7.0": true, "5.15": false, "": false, "x": false} {
		if recent(release) != want {
			t.Errorf("%q: %v", release, !want)
		}
	}
}
