package coord

import "time"

// MaxStartup is the time after the start of a broker at which its totals count as complete in any
// case. If nodes wait for their turn to be authenticated, the last of ten thousand nodes connects
// after about 40 s.
const MaxStartup = time.Minute

// Startup decides when the totals of a new leading broker are complete. At first, the totals lack
// the nodes that have not found the broker yet. Times are durations since any fixed moment.
type Startup struct {
	// Least is the minimum duration of the startup.
	Least time.Duration

	began, came time.Duration
	wait        time.Duration // wait after the last new node
	nodes       map[string]struct{}
	complete    bool
}

// Reset begins a new startup.
func (b *Startup) Reset(now time.Duration) {
	*b = Startup{Least: b.Least, began: now, came: now}
}

// Join records that a node has connected. Its first rates are expected within one period plus a
// quarter for delays. A node that connects again does not prolong the startup.
func (b *Startup) Join(node string, now, period time.Duration) {
	if _, known := b.nodes[node]; known || b.complete {
		return
	}
	if b.nodes == nil {
		b.nodes = map[string]struct{}{}
	}
	b.nodes[node] = struct{}{}
	b.came, b.wait = now, max(b.wait, period+period/4)
}

// Complete reports whether the totals are complete for a node with this period. It assumes that
// other nodes have similar periods. The totals are complete after at least two periods, once no new
// node has connected for a while.
func (b *Startup) Complete(now, period time.Duration) bool {
	since := now - b.began
	if since >= b.Least && now-b.came >= b.wait || since >= MaxStartup {
		b.complete, b.nodes = true, nil
	}
	return b.complete && since >= 2*period
}
