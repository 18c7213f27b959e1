package main

import (
	"strings"
	"testing"
	"time"

	"penstock/wire/cluster"
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

// TestTheDeadlinesLine: app status says what is decided, and which part of the needed rate is guaranteed.
func TestTheDeadlinesLine(t *testing.T) {
	s := &cluster.ApplicationState{DeadlineUnixMs: 1, DeadlineState: "granted", DeadlineRate: 40 << 20, TotalReserve: 44 << 20, Promise: &cluster.Promise{State: "admitted", Granted: 1}}
	line := func() string {
		t.Helper()
		lines := endLines(s)
		if len(lines) != 1 || lines[0][0] != "deadline" {
			t.Fatal(lines)
		}
		return lines[0][1]
	}
	if text := line(); !strings.HasSuffix(text, " granted; it needs 40.0 MiB/s, and is guaranteed 44.0 MiB/s") {
		t.Error(text)
	}
	s.DeadlineState, s.DeadlineReason, s.Promise.Granted = "queued", "no\x1b room", 0
	if text := line(); !strings.Contains(text, " queued: no") || strings.Contains(text, "\x1b") || !strings.HasSuffix(text, "is guaranteed nothing") {
		t.Error(text)
	}
	if got := asAppJSON(s); got.DeadlineState != "queued" || got.Deadline != 1 || got.DeadlineRate != 40<<20 {
		t.Errorf("%+v", got)
	}
}
