package node

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"penstock/node/monitor/connections"
	"penstock/node/status"
	"penstock/wire"
)

// This file follows the connections between DataNodes and their clients, and reports them in the
// status.

const (
	// connectionsPeriod is the time between two looks at the kernel's connections. A look at 2,000
	// connections takes a few milliseconds of CPU time.
	connectionsPeriod = 5 * time.Second
	// maxStatusConnections is the maximum number of connections in the status document.
	maxStatusConnections = 64
)

// connectionWatch is the watch and its last error.
type connectionWatch struct {
	*connections.Watch

	mu      sync.Mutex
	mistake string
	seconds float64 // between the last two looks
	looked  time.Time
}

// follow looks at the connections until ctx ends.
func (w *connectionWatch) follow(ctx context.Context) {
	ticker := time.NewTicker(connectionsPeriod)
	defer ticker.Stop()
	for {
		w.look(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (w *connectionWatch) look(now time.Time) {
	err := w.Look(now)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.mistake = err.Error()
		return
	}
	if w.mistake = ""; !w.looked.IsZero() {
		w.seconds = now.Sub(w.looked).Seconds()
	}
	w.looked = now
}

// status returns the connections that moved most bytes between the last two looks.
func (w *connectionWatch) status() status.Connections {
	s := w.Snapshot(maxStatusConnections)
	w.mu.Lock()
	defer w.mu.Unlock()
	out := status.Connections{Error: w.mistake, Seconds: w.seconds, Ports: s.Ports, Established: s.Established, AtBound: s.More,
		LeftOff: s.Established - len(s.Top), Top: []status.Connection{}}
	for _, c := range s.Top {
		direction := ""
		switch {
		case c.Flow == "":
		case c.Write:
			direction = "write"
		default:
			direction = "read"
		}
		block := ""
		if c.File != "" {
			block = filepath.Base(c.File)
		}
		out.Top = append(out.Top, status.Connection{
			Server: c.Server.String(), Client: c.Client.String(), Flow: c.Flow, Direction: direction, Block: block, Streaming: c.Open,
			SentBytes: c.Sent, ReceivedBytes: c.Received, SentRate: c.SentRate, ReceivedRate: c.ReceivedRate,
			RTTNS: c.RTT.Nanoseconds(), PacingRate: paced(c.Pacing),
		})
	}
	return out
}

// paced returns a rate of the kernel in the form of the status: 0 if the kernel does not pace.
func paced(bytesPerSecond uint64) int64 {
	if int64(bytesPerSecond) < 0 {
		return 0
	}
	return int64(bytesPerSecond)
}

// connectionOf records the connection that a DataNode's stream serves. The result is nil for other
// streams.
func (r *registration) connectionOf(m wire.Open, flow string) *connections.Use {
	if r.role != wire.RoleDataNode || m.Client == wire.Own {
		return nil
	}
	return r.connections.Opened(m.Server, m.Client, flow, m.Path, m.Direction == wire.Write)
}
