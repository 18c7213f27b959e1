package soak

import (
	"context"
	"fmt"
	"sync"
	"time"

	"penstock/lab/client"
	"penstock/lab/stand"
)

// The probe's two clients are tasks of the application probeApplication. Its files are in probeDir.
const (
	probeApplication = 1
	probeDir         = "/probe"
	probeBytes       = 16 << 20 // of the file that is read
	probeSeed        = 77
	probeEvery       = 50 // ms between two operations of one client
)

// op is a finished operation of the probe.
type op struct {
	name       string // create, write, close, read
	begin, end time.Time
}

func (o op) took() time.Duration { return o.end.Sub(o.begin) }

// overlaps reports whether the operation was in progress in a window.
func (o op) overlaps(from, to time.Time) bool { return o.begin.Before(to) && o.end.After(from) }

// probe consists of two clients of HDFS. During the whole campaign, each performs a small operation
// twenty times a second. One writes to both DataNodes, the other reads.
type probe struct {
	jvm *client.JVM
	ids []int

	mu      sync.Mutex
	ops     []op          // those that a later window may include
	latest  [2]time.Time  // start of each client's latest finished operation
	count   int           // operations so far
	trouble []string      // operations that failed
	dead    error         // a client has ended
	changed chan struct{} // closed at the next event
	ended   int
}

// startProbe writes the file to read and starts the clients.
func startProbe(ctx context.Context, m *machine) (*probe, error) {
	p := &probe{jvm: m.Clients, changed: make(chan struct{})}
	file := transfer{app: probeApplication, path: probeDir + "/read", bytes: probeBytes, seed: probeSeed}
	if err := file.put(ctx, m.Clients); err != nil {
		return nil, fmt.Errorf("the probe's file: %w", err)
	}
	common := fmt.Sprintf("attempt=%s every=%d seed=%d", client.Attempt(probeApplication), probeEvery, probeSeed)
	for which, operation := range []string{"probe-read", "probe-write"} {
		args := []string{fmt.Sprintf("path=%s length=%d ", file.path, probeBytes), fmt.Sprintf("path=%s/written replication=%d ", probeDir, Nodes)}[which] + common
		p.ids = append(p.ids, m.Clients.Do(operation, args, func(event, value string) { p.take(which, event, value) }))
	}
	return p, nil
}

func (p *probe) take(which int, event, value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch event {
	case "done":
		p.ended++
	case "error":
		p.ended++
		p.dead = fmt.Errorf("the probe has ended: %s", value)
	case "trouble":
		p.trouble = append(p.trouble, value)
	default:
		begin, took, err := client.Timed(value)
		if err != nil {
			p.dead = err
			break
		}
		p.count++
		p.ops = append(p.ops, op{event, begin, begin.Add(took)})
		p.latest[which] = begin
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// until waits until a condition holds; it checks the condition after each event. It returns an
// error if a client has ended.
func (p *probe) until(ctx context.Context, holds func() bool) error {
	for {
		p.mu.Lock()
		ok, dead, changed := holds(), p.dead, p.changed
		p.mu.Unlock()
		if dead != nil || ok {
			return dead
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// served waits until both clients have finished an operation that began after a time, so that all
// earlier operations have ended, too.
func (p *probe) served(ctx context.Context, after time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stand.Patience, fmt.Errorf("not within %v: the probe's clients are served", stand.Patience))
	defer cancel()
	return p.until(ctx, func() bool { return p.latest[0].After(after) && p.latest[1].After(after) })
}

// felt returns the probe's longest operation in a window, the number of its operations, and those
// that have failed since the last call. It drops operations that ended before the window.
func (p *probe) felt(from, to time.Time) (longest op, ops int, failed []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.ops[:0]
	for _, o := range p.ops {
		if o.overlaps(from, to) {
			ops++
			if o.took() > longest.took() {
				longest = o
			}
		}
		if o.end.After(from) {
			kept = append(kept, o)
		}
	}
	p.ops = kept
	failed, p.trouble = p.trouble, nil
	return longest, ops, failed
}

// stop ends the clients, each after its current operation.
func (p *probe) stop(ctx context.Context) error {
	for _, id := range p.ids {
		p.jvm.Limit(id, 0)
	}
	return p.until(ctx, func() bool { return p.ended == len(p.ids) })
}
