package broker

import (
	"sync"
	"time"
)

const (
	// paceBurst is how many reports a node may send at once: as many as it has under way when
	// answers are late, and the stream's first.
	paceBurst = 10
	// paceFactor is how many times the rate that it has announced a node may keep up.
	paceFactor = 2
	periodLow  = 100 * time.Millisecond
)

// pace holds a node to its period. One that reports faster is answered later: its stream's
// window fills, and its own sending waits.
type pace struct {
	each time.Duration // a report's part of the budget
	next time.Time     // when the budget is full again
}

func newPace(period time.Duration) pace {
	return pace{each: min(max(period, periodLow), periodMax) / paceFactor}
}

// wait books a report and returns how long it must wait.
func (p *pace) wait(now time.Time) time.Duration {
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(p.each)
	return p.next.Sub(now) - paceBurst*p.each
}

// quiet bounds what bad peers have the broker write to its log: perSecond lines.
type quiet struct {
	mu     sync.Mutex
	second int64
	said   int
	unsaid int
}

const perSecond = 10

// say tells whether a line may be written, and how many were not since the last one.
func (q *quiet) say(now time.Time) (unsaid int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := now.Unix(); s != q.second {
		q.second, q.said = s, 0
	}
	if q.said >= perSecond {
		q.unsaid++
		return 0, false
	}
	q.said++
	unsaid, q.unsaid = q.unsaid, 0
	return unsaid, true
}
