// Package progress prints the progress of a measurement: lines with the time since its start, and a
// live line that is rewritten on a terminal.
package progress

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Log prints to Out. Several goroutines may use it. A nil Log prints nothing.
type Log struct {
	Out      io.Writer
	Terminal bool          // Out is a terminal, so the live line can be rewritten
	Every    time.Duration // least time between live lines if Out is no terminal; 0: 10 s

	mu      sync.Mutex
	begun   time.Time
	printed time.Time
	live    bool
}

// Elapsed returns the time since the first call of any method.
func (l *Log) Elapsed() time.Duration {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.elapsed()
}

func (l *Log) elapsed() time.Duration {
	if l.begun.IsZero() {
		l.begun = time.Now()
	}
	return time.Since(l.begun)
}

// Printf prints a line with the time since the start, above the live line.
func (l *Log) Printf(format string, args ...any) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live {
		fmt.Fprint(l.Out, "\r\x1b[K")
		l.live = false
	}
	fmt.Fprintf(l.Out, "%s  %s\n", Clock(l.elapsed()), fmt.Sprintf(format, args...))
	l.printed = time.Now()
}

// Live prints the live line. On a terminal it rewrites the line, at most once a second. Elsewhere
// it prints a new line if nothing was printed for Every.
func (l *Log) Live(text func() string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	every := l.Every
	switch {
	case l.Terminal:
		every = time.Second
	case every == 0:
		every = 10 * time.Second
	}
	if time.Since(l.printed) < every {
		return
	}
	l.printed = time.Now()
	line := Clock(l.elapsed()) + "  " + text()
	if l.Terminal {
		fmt.Fprintf(l.Out, "\r\x1b[K%s", line)
		l.live = true
		return
	}
	fmt.Fprintln(l.Out, line)
}

// Clock returns d as minutes and seconds or, from one hour on, as hours, minutes and seconds.
func Clock(d time.Duration) string {
	s := int(d.Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%02d:%02d", s/60, s%60)
}
