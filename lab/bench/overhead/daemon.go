package overhead

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"penstock/lab/daemon"
	"penstock/lab/ledger"
)

const (
	daemonPatience = 20 * time.Second
	// settle is two heartbeats: the agent has the mode and has slept since.
	settle = 500 * time.Millisecond
)

// startDaemon starts a daemon with the settings that it has when nobody sets any,
// but for more, YAML, and returns when so many agents are connected and have heard
// the mode.
func startDaemon(ctx context.Context, book *ledger.Ledger, binary, dir, socket, mode, more string, agents int) (*daemon.Daemon, error) {
	d, err := daemon.Start(ctx, daemon.Options{Book: book, Binary: binary, Base: filepath.Join(dir, "node"),
		Socket: socket, Mode: mode, More: more, LogLevel: "info", Patience: daemonPatience})
	if err != nil {
		return nil, err
	}
	if err := awaitAgents(ctx, d, agents); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

func awaitAgents(ctx context.Context, d *daemon.Daemon, agents int) error {
	ctx, cancel := context.WithTimeout(ctx, daemonPatience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := d.Metric(ctx, "agent_connections")
		if err == nil && n >= float64(agents) {
			break
		}
		select {
		case <-tick.C:
		case <-d.Exited():
			return fmt.Errorf("penstock node ended: see %s", d.Log)
		case <-ctx.Done():
			return fmt.Errorf("%v of %d agents are connected to penstock node: %w: see %s", n, agents, errors.Join(err, ctx.Err()), d.Log)
		}
	}
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
