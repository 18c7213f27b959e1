package main

import (
	"testing"
	"time"
)

func TestParseBy(t *testing.T) {
	now := time.Date(2026, 11, 25, 8, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"2h": "2026-11-25T10:00:00Z", "18:00": "2026-11-25T18:00:00Z", "08:00": "2026-11-26T08:00:00Z", "07:30": "2026-11-26T07:30:00Z",
		"2026-11-25T09:00:00+00:00": "2026-11-25T09:00:00Z", "0s": "", "-1h": "", "2026-11-25T08:00:00Z": "", "soon": "", "": "",
	} {
		at, err := parseBy(text, now)
		if (err == nil) != (want != "") || err == nil && at.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q: %v, %v, want %q", text, at, err, want)
		}
	}
}
