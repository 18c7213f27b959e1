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
	reportBurst = 10
	// paceFactor is how many times the rate that it has announced a node may keep up.
	reportRateFactor = 2
	shortestPeriod   = 100 * time.Millisecond
	// paceWaiting is for how many reports a node's new stream may wait; it is refused before
	// more are.
	maxWaitingReports = 10
	// maxPaces bounds the names that are remembered: those at work, and as many that were.
	maxReportLimiters = 2 * maxNodes
)

// pace holds a node to its period. One that reports faster is answered later: its stream's
// window fills, and its own sending waits.
type reportLimiter struct {
	each time.Duration // a report's part of the budget
	next time.Time     // when the budget is full again
}

func newReportLimiter(period time.Duration) reportLimiter {
	return reportLimiter{each: min(max(period, shortestPeriod), maxPeriod) / reportRateFactor}
}

// wait books a report and returns how long it must wait.
func (p *reportLimiter) wait(now time.Time) time.Duration {
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(p.each)
	return p.next.Sub(now) - reportBurst*p.each
}

// to changes the period: what was used up of the budget counts on, in reports.
func (p *reportLimiter) setPeriod(period time.Duration, now time.Time) {
	each := newReportLimiter(period).each
	if each != p.each && p.next.After(now) {
		p.next = now.Add(time.Duration(float64(p.next.Sub(now)) * float64(each) / float64(p.each)))
	}
	p.each = each
}

var errReportRate = errors.New("too many streams of this node, one after the other")

// paces hold nodes to their periods by their names: a new stream has what the last one left.
type reportLimiters struct {
	mu     sync.Mutex
	byNode map[string]*reportLimiter
}

// begin books the first report of a node's stream. Errors: as many wait as may.
func (p *reportLimiters) begin(node string, period time.Duration, now time.Time) (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	has := p.byNode[node]
	if has == nil {
		if len(p.byNode) >= maxReportLimiters {
			return 0, coord.ErrTooManyMembers
		}
		fresh := newReportLimiter(period)
		has = &fresh
		p.byNode[node] = has
	}
	has.setPeriod(period, now)
	if has.next.Sub(now) > (reportBurst+maxWaitingReports)*has.each {
		return 0, errReportRate
	}
	return has.wait(now), nil
}

// wait books another report.
func (p *reportLimiters) wait(node string, period time.Duration, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	has := p.byNode[node]
	if has == nil { // it was silent for long
		fresh := newReportLimiter(period)
		has = &fresh
		p.byNode[node] = has
	}
	return has.wait(now)
}

// sweep forgets who has used nothing of his budget for a while.
func (p *reportLimiters) sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for node, has := range p.byNode {
		if now.Sub(has.next) > maxPeriod {
			delete(p.byNode, node)
		}
	}
}

// quiet bounds what bad peers have the broker write to its log: perSecond lines.
type logLimiter struct {
	mu     sync.Mutex
	second int64
	said   int
	unsaid int
}

const logLinesPerSecond = 10

// say tells whether a line may be written, and how many were not since the last one.
func (q *logLimiter) allow(now time.Time) (unsaid int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := now.Unix(); s != q.second {
		q.second, q.said = s, 0
	}
	if q.said >= logLinesPerSecond {
		q.unsaid++
		return 0, false
	}
	q.said++
	unsaid, q.unsaid = q.unsaid, 0
	return unsaid, true
}
