package broker

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"penstock/core/coord"
)

const (
	// reportBurst is the number of reports that a node may send at once: the first report of
	// a stream, and those in flight while answers are late.
	reportBurst = 10
	// reportRateFactor is the ratio of the highest sustained report rate to the rate that
	// the node announced.
	reportRateFactor = 2
	shortestPeriod   = 100 * time.Millisecond
	// maxWaitingReports is the number of reports that may wait when a node opens a new stream. If
	// more are waiting, the stream is refused.
	maxWaitingReports = 10
	// maxReportLimiters is the maximum number of remembered node names: those of connected nodes,
	// and as many of disconnected nodes.
	maxReportLimiters = 2 * maxNodes
)

var errReportRate = errors.New("this node opened too many streams in a short time; wait a few seconds before the next one")

// reportLimiters limits each node to its announced report rate, with one token bucket per node
// name. A report beyond the rate is answered late, so that the stream's flow control window fills
// and the node stops sending. A new stream continues with the node's old bucket.
type reportLimiters struct {
	mu     sync.Mutex
	byNode map[string]*rate.Limiter
}

// reportRate returns the rate at which a node with the given period may report.
func reportRate(period time.Duration) rate.Limit {
	return rate.Every(min(max(period, shortestPeriod), maxPeriod) / reportRateFactor)
}

func newReportLimiter(period time.Duration) *rate.Limiter {
	return rate.NewLimiter(reportRate(period), reportBurst)
}

// begin takes a token for the first report of a stream and returns how long the report has
// to wait. It fails if too many reports of the node are waiting already.
func (p *reportLimiters) begin(node string, period time.Duration, now time.Time) (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.byNode[node]
	if l == nil {
		if len(p.byNode) >= maxReportLimiters {
			return 0, coord.ErrTooManyMembers
		}
		l = newReportLimiter(period)
		p.byNode[node] = l
	}
	l.SetLimitAt(now, reportRate(period)) // the tokens are kept
	if l.TokensAt(now) < -maxWaitingReports {
		return 0, errReportRate
	}
	return l.ReserveN(now, 1).DelayFrom(now), nil
}

// wait takes a token for another report of a stream and returns how long it has to wait.
func (p *reportLimiters) wait(node string, period time.Duration, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.byNode[node]
	if l == nil { // dropped by sweep after a long silence
		l = newReportLimiter(period)
		p.byNode[node] = l
	}
	return l.ReserveN(now, 1).DelayFrom(now)
}

// sweep drops the buckets that have been full for at least maxPeriod.
func (p *reportLimiters) sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for node, l := range p.byNode {
		if l.TokensAt(now.Add(-maxPeriod)) >= reportBurst {
			delete(p.byNode, node)
		}
	}
}
