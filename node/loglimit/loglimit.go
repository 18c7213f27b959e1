// Package loglimit writes to the log what peers provoke, without letting them fill it.
//
// Problem: a peer that is refused connects again, twice a second and for ever; with one
// line each time the log has 170,000 lines a day that say the same. Choice: a condition
// is said once for each peer, then counted, and said again after a while with the count.
// Lines of all conditions together have a rate of their own, as there may be many peers,
// and what is kept of them is bounded. Exact counts are in the metrics.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Bounds of a Limiter.
const (
	Every      = 10 * time.Minute // between two lines about one condition of one peer
	conditions = 1024             // that are kept apart
	lineBurst  = 100              // lines of all conditions at once,
	lineEvery  = time.Second      // and the time after which there may be one more
)

// Limiter limits lines. Its methods may be called from any goroutine.
type Limiter struct {
	Suppressed atomic.Int64 // lines that were not written

	log   *slog.Logger
	clock func() time.Time

	mu    sync.Mutex
	lines *rate.Limiter
	said  *simplelru.LRU[condition, *account]
}

type condition struct{ message, peer string }

type account struct {
	began time.Time // of the time for which lines are counted
	lines int       // written in it
	kept  int64     // not written since the last line
}

// New makes a limiter in front of log.
func New(log *slog.Logger) *Limiter { return with(log, time.Now) }

func with(log *slog.Logger, clock func() time.Time) *Limiter {
	said, _ := simplelru.NewLRU[condition, *account](conditions, nil) // fails for a size below 1 only
	return &Limiter{log: log, clock: clock, lines: rate.NewLimiter(rate.Every(lineEvery), lineBurst), said: said}
}

// Once writes a line about a condition of a peer, once in the time Every. The message is
// the condition; peer is who it is about, and nothing that the peer may choose freely.
func (l *Limiter) Once(level slog.Level, message, peer string, args ...any) {
	l.Some(1, level, message, peer, args...)
}

// Some writes at most n lines in the time Every.
func (l *Limiter) Some(n int, level slog.Level, message, peer string, args ...any) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	l.mu.Lock()
	now := l.clock()
	a, ok := l.said.Get(condition{message, peer})
	if !ok {
		a = &account{}
		l.said.Add(condition{message, peer}, a)
	}
	if a.began.IsZero() || now.Sub(a.began) >= Every {
		a.began, a.lines = now, 0
	}
	if a.lines >= n || !l.lines.AllowN(now, 1) {
		a.kept++
		l.mu.Unlock()
		l.Suppressed.Add(1)
		return
	}
	a.lines++
	kept := a.kept
	a.kept = 0
	l.mu.Unlock()
	if kept > 0 {
		args = append(args, "not_logged_before", kept)
	}
	l.log.Log(context.Background(), level, message, args...)
}
