package coord

import "time"

// Life is what a cluster manager says about an application.
type Life uint8

// The values of Life.
const (
	LifeUnknown Life = iota // no cluster manager knows the application
	LifeRuns
	LifeEnded
)

// endsAfter is the time without use after which an application that no cluster manager knows counts as ended. A device forgets
// a flow's guaranteed rate after the same time.
const endsAfter = 10 * time.Second

// Live records what is known about the application's life. total is what its nodes report together. An application that has ended holds no
// room: its guaranteed rate is not divided, and when it is at work again, it is admitted like a new one. An application that a
// cluster manager knows holds its room until it ends, or until no node remembers it.
func (t *TotalRate) Live(now time.Duration, life Life, total Service) {
	used := total.Bytes > 0 || total.Hungry > 0 || total.Streams > 0
	if used || !t.known {
		t.used, t.known = now, true
	}
	over := life == LifeEnded || life == LifeUnknown && now-t.used > endsAfter
	if t.over && !over { // it is a new one
		t.Since = now
	}
	t.over = over
}
