package broker

import (
	"errors"
	"sync"
	"time"

	"penstock/core/coord"
)

const (
	// paceBurst is how many reports a node may send at once: as many as it has under way when
	// answers are late, and the stream's first.
	paceBurst = 10
	// paceFactor is how many times the rate that it has announced a node may keep up.
	paceFactor = 2
	periodLow  = 100 * time.Millisecond
	// paceWaiting is for how many reports a node's new stream may wait; it is refused before
	// more are.
	paceWaiting = 10
	// maxPaces bounds the names that are remembered: those at work, and as many that were.
	maxPaces = 2 * maxNodes
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

// to changes the period: what was used up of the budget counts on, in reports.
func (p *pace) to(period time.Duration, now time.Time) {
	each := newPace(period).each
	if each != p.each && p.next.After(now) {
		p.next = now.Add(time.Duration(float64(p.next.Sub(now)) * float64(each) / float64(p.each)))
	}
	p.each = each
}

var errPace = errors.New("too many streams of this node, one after the other")

// paces hold nodes to their periods by their names: a new stream has what the last one left.
type paces struct {
	mu sync.Mutex
	of map[string]*pace
}

// begin books the first report of a node's stream. Errors: as many wait as may.
func (p *paces) begin(node string, period time.Duration, now time.Time) (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	has := p.of[node]
	if has == nil {
		if len(p.of) >= maxPaces {
			return 0, coord.ErrTooManyMembers
		}
		fresh := newPace(period)
		has = &fresh
		p.of[node] = has
	}
	has.to(period, now)
	if has.next.Sub(now) > (paceBurst+paceWaiting)*has.each {
		return 0, errPace
	}
	return has.wait(now), nil
}

// wait books another report.
func (p *paces) wait(node string, period time.Duration, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	has := p.of[node]
	if has == nil { // it was silent for long
		fresh := newPace(period)
		has = &fresh
		p.of[node] = has
	}
	return has.wait(now)
}

// sweep forgets who has used nothing of his budget for a while.
func (p *paces) sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for node, has := range p.of {
		if now.Sub(has.next) > periodMax {
			delete(p.of, node)
		}
	}
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
