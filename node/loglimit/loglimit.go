// Package loglimit logs messages that peers can cause, without letting peers fill the log.
//
// Problem: a refused peer connects again, twice a second and for ever. One line for each attempt
// would be 170,000 equal lines per day. Choice: a condition is logged once for each peer, then
// counted, and logged again after a while with the count. Lines of all conditions together have a
// rate limit of their own, since there may be many peers, and the memory for conditions is bounded.
// Exact counts are in the metrics.
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
	conditions = 1024             // conditions that are distinguished
	lineBurst  = 100              // lines of all conditions at once,
	lineEvery  = time.Second      // then one more line after each
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
	began time.Time // start of the period in which lines are counted
	lines int       // lines written in the period
	kept  int64     // lines suppressed since the last line
}

// New returns a limiter in front of log.
func New(log *slog.Logger) *Limiter { return with(log, time.Now) }

func with(log *slog.Logger, clock func() time.Time) *Limiter {
	said, _ := simplelru.NewLRU[condition, *account](conditions, nil) // fails only for a size below 1
	return &Limiter{log: log, clock: clock, lines: rate.NewLimiter(rate.Every(lineEvery), lineBurst), said: said}
}

// Once writes at most one line about a condition of a peer in the time Every. The message is the
// condition. peer identifies the peer; it must contain nothing that the peer can choose freely.
func (l *Limiter) Once(level slog.Level, message, peer string, args ...any) {
	l.Some(1, level, message, peer, args...)
}

// Some writes at most n such lines in the time Every.
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
