package broker

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// logLinesPerSecond is the maximum rate of log lines that misbehaving peers can cause.
const logLinesPerSecond = 10

// logLimiter limits log lines to logLinesPerSecond and counts those it suppresses.
type logLimiter struct {
	lines *rate.Limiter

	mu         sync.Mutex
	suppressed int
}

func newLogLimiter() *logLimiter {
	return &logLimiter{lines: rate.NewLimiter(logLinesPerSecond, logLinesPerSecond)}
}

// allow reports whether a line may be written now, and how many lines were suppressed since the
// last written one.
func (l *logLimiter) allow(now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.lines.AllowN(now, 1) {
		l.suppressed++
		return 0, false
	}
	suppressed, l.suppressed = l.suppressed, 0
	return suppressed, true
}
