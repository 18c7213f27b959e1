package main

import "testing"

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "512": 512, "64K": 64 << 10, "12M": 12 << 20, "1.5G": 3 << 29, "2T": 2 << 40, "2000000K": 2000000 << 10,
	} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("%q is %d (%v), want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "M", "-1", "NaN", "Inf", "12MB", "12m", "1e30", "99999T"} {
		if got, err := parseBytes(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}
