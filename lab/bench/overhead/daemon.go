package overhead

import (
	"context"
	"errors"
	"fmt"
	"time"

	"penstock/lab/daemon"
)

const (
	daemonPatience = 20 * time.Second
	// settle is two heartbeats: the agent has the mode and has slept since.
	settle = 500 * time.Millisecond
)

// startDaemon starts a daemon with default settings and returns when the DataNode's agent is
// connected and has heard the mode.
func (m *Machine) startDaemon(ctx context.Context, mode Variant) error {
	d, err := m.StartDaemon(ctx, daemon.Options{Base: "node", Socket: m.Socket(0), Mode: string(mode), Patience: daemonPatience})
	if err != nil {
		return err
	}
	err = m.Await(ctx, "the agent is connected", func(ctx context.Context) (bool, error) {
		n, err := d.Metric(ctx, "agent_connections")
		return n >= 1, err
	})
	if err != nil {
		return errors.Join(err, d.Stop())
	}
	m.daemon = d
	select {
	case <-time.After(settle):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stopDaemon ends it. One that died before is an error: what it governed was not
// governed to its end.
func stopDaemon(d *daemon.Daemon) error {
	if !d.Alive() {
		return fmt.Errorf("penstock node had ended by itself: see %s", d.Log)
	}
	return d.Stop()
}
