package loglimit

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"
)

func limited() (*Limiter, *bytes.Buffer, *time.Time) {
	out, now := &bytes.Buffer{}, time.Unix(1, 0)
	return with(slog.New(slog.NewTextHandler(out, nil)), func() time.Time { return now }), out, &now
}

// A peer that is refused twice a second for a day causes one line in ten minutes.
func TestADayOfRefusals(t *testing.T) {
	l, out, now := limited()
	for range 2 * 24 * 3600 {
		l.Once(slog.LevelWarn, "agent refused", "uid 7", "uid", 7)
		*now = now.Add(500 * time.Millisecond)
	}
	if got := strings.Count(out.String(), "\n"); got != 24*6 {
		t.Errorf("%d lines a day", got)
	}
	if !strings.Contains(out.String(), "not_logged_before=1199") {
		t.Error("the count is not said:\n" + out.String()[:400])
	}
	if got := l.Suppressed.Load(); got != 2*24*3600-24*6 {
		t.Errorf("%d lines suppressed", got)
	}
}

func TestPeersAndConditionsAreKeptApart(t *testing.T) {
	l, out, _ := limited()
	for range 3 {
		l.Once(slog.LevelWarn, "a", "1")
		l.Once(slog.LevelWarn, "a", "2")
		l.Some(2, slog.LevelInfo, "b", "1")
		l.Once(slog.LevelDebug, "not enabled", "1")
	}
	if got := strings.Count(out.String(), "\n"); got != 4 {
		t.Errorf("%d lines:\n%s", got, out)
	}
}

// However many peers there are, the rate of lines and the memory are bounded.
func TestManyPeers(t *testing.T) {
	l, out, now := limited()
	for i := range 10 * conditions {
		l.Once(slog.LevelWarn, "agent refused", strconv.Itoa(i))
	}
	if got := strings.Count(out.String(), "\n"); got != lineBurst || l.said.Len() != conditions {
		t.Errorf("%d lines, %d conditions kept", got, l.said.Len())
	}
	*now = now.Add(lineEvery)
	l.Once(slog.LevelWarn, "agent refused", "later")
	if got := strings.Count(out.String(), "\n"); got != lineBurst+1 {
		t.Errorf("%d lines", got)
	}
}
