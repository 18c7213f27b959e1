package soak

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/experiment"
	"penstock/lab/stand"
)

// fault causes a fault and undoes it. It returns when the former state is restored: the daemon
// runs, the agents are connected and know the mode, and after a kill of a DataNode every block is
// on both DataNodes again.
func (m *machine) fault(ctx context.Context, s Step) error {
	switch s.Kind {
	case KillDaemon:
		if err := m.daemon().Kill(); err != nil {
			return err
		}
		if err := errors.Join(experiment.Pause(ctx, s.Lasts), m.StartNode(ctx, 0, nil)); err != nil {
			return err
		}
		return m.awaitAgents(ctx, "enforce")
	case StopDaemon:
		return errors.Join(m.stopped(ctx, m.daemon().PID(), s.Lasts), m.awaitAgents(ctx, "enforce"))
	case KillDataNode:
		m.Hadoop.KillDataNode(s.Node)
		err := errors.Join(experiment.Pause(ctx, s.Lasts), m.Hadoop.StartDataNode(ctx, s.Node))
		return errors.Join(err, m.awaitAgents(ctx, "enforce"), m.redundant(ctx))
	case StopDataNode:
		return errors.Join(m.stopped(ctx, m.Hadoop.DataNodePID(s.Node), s.Lasts), m.awaitAgents(ctx, "enforce"))
	case Garbage:
		bad, err := badFrame(s.Variant, m.dataDir(0))
		if err != nil {
			return err
		}
		return m.garbage(ctx, bad)
	case HalfFrame:
		return m.halfFrames(ctx, s.Lasts)
	case Cut:
		return m.cut(ctx, s.Node)
	case KillSwitch:
		return m.switchOff(ctx, s.Lasts)
	case Weights:
		return m.reweigh(ctx, badWeights(s.Variant), s.Lasts)
	case SlowDisk:
		return m.slowDisk(ctx, s.Node, s.Lasts)
	case Calm:
		return experiment.Pause(ctx, s.Lasts)
	}
	return fmt.Errorf("no such fault: %q", s.Kind)
}

// stopped stops a process for a while. It continues the process after an error, too.
func (m *machine) stopped(ctx context.Context, pid int, lasts time.Duration) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	err := experiment.Pause(ctx, lasts)
	if cont := syscall.Kill(pid, syscall.SIGCONT); cont != nil {
		return errors.Join(err, fmt.Errorf("continue process %d: %w", pid, cont))
	}
	return err
}

// until performs an action on the daemon and waits until a figure is larger than before the action.
func (m *machine) until(ctx context.Context, what string, figure func(context.Context) (float64, error), do func() error) error {
	before, err := figure(ctx)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return m.await(ctx, what, func(ctx context.Context) (bool, error) {
		now, err := figure(ctx)
		return now > before, err
	})
}

func (m *machine) untilCounted(ctx context.Context, do func() error, metric string, labels ...string) error {
	return m.until(ctx, "the daemon counts "+metric, func(ctx context.Context) (float64, error) {
		return m.daemon().Metric(ctx, metric, labels...)
	}, do)
}

// garbage sends invalid data to the daemon, which must count a bad frame and close the connection.
func (m *machine) garbage(ctx context.Context, bad daemon.Bad) error {
	return m.untilCounted(ctx, func() error {
		if err := daemon.Refused(m.Socket(0), bad.Bytes, stand.Patience); err != nil {
			return fmt.Errorf("garbage (%s): %w", bad.Name, err)
		}
		return nil
	}, "agent_bad_frames_total")
}

// halfFrames connects peers that send part of a frame and then nothing. One of them sends HELLO
// first.
func (m *machine) halfFrames(ctx context.Context, lasts time.Duration) error {
	hello, err := daemon.Hello(m.dataDir(0))
	if err != nil {
		return err
	}
	for _, bytes := range [][]byte{hello[:len(hello)/2], hello[:3], append(hello, 0, 12, 4, 1, 0, 0)} {
		c, err := net.Dial("unix", m.Socket(0))
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write(bytes); err != nil {
			return err
		}
	}
	return experiment.Pause(ctx, lasts)
}

// cut breaks an agent's connection and waits until the agent has connected again.
func (m *machine) cut(ctx context.Context, which int) error {
	err := m.until(ctx, "an agent has connected again", func(ctx context.Context) (sum float64, err error) {
		for i := range Nodes {
			g, err := m.gates(ctx, i)
			if err != nil {
				return 0, err
			}
			sum += float64(g.Reconnects)
		}
		return sum, nil
	}, func() error { return daemon.Cut(m.daemon().PID(), m.Socket(0), which) })
	if err != nil {
		return err
	}
	return m.awaitAgents(ctx, "enforce")
}

// switchOff turns the kill switch on for a while.
func (m *machine) switchOff(ctx context.Context, lasts time.Duration) error {
	killSwitch := m.Socket(0) + ".off"
	if err := os.WriteFile(killSwitch, nil, 0o644); err != nil {
		return err
	}
	err := errors.Join(m.awaitAgents(ctx, "off"), experiment.Pause(ctx, lasts))
	return errors.Join(err, os.Remove(killSwitch), m.awaitAgents(ctx, "enforce"))
}

// reweigh changes the weights file for a while. A refused content must be counted; an accepted
// content must be in force before the change is undone.
func (m *machine) reweigh(ctx context.Context, w weightsText, lasts time.Duration) error {
	if err := m.setWeights(ctx, w.text, w.refused); err != nil {
		return fmt.Errorf("weights file, %s: %w", w.name, err)
	}
	return errors.Join(experiment.Pause(ctx, lasts), m.setWeights(ctx, goodWeights, false), m.awaitAgents(ctx, "enforce"))
}

func (m *machine) setWeights(ctx context.Context, text string, refused bool) error {
	label := `result="taken"`
	if refused {
		label = `result="refused"`
	}
	return m.untilCounted(ctx, func() error { return m.daemon().SetWeights(text) }, "weights_reloads_total", label)
}

// slower is the factor by which a slow disk is slower than usual.
const slower = 10

// slowDisk makes a disk slower for a while. It restores the former speed after an error, too.
func (m *machine) slowDisk(ctx context.Context, i int, lasts time.Duration) error {
	if err := m.Disks[i].SetModel(slow(m.setup.Disk)); err != nil {
		return err
	}
	return errors.Join(experiment.Pause(ctx, lasts), m.Disks[i].SetModel(m.setup.Disk))
}

func slow(d disk.Model) disk.Model {
	d.BytesPerSecond /= slower
	d.SeekMin *= slower
	d.SeekMax *= slower
	return d
}
