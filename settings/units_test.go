package settings

import "testing"

func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"0", "64KiB", "2 MiB", "9223372036854775807GiB", "-1", "MiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := ParseBytes(s); err == nil && v < 0 {
			t.Errorf("ParseBytes(%q) = %d", s, v)
		}
	})
}
