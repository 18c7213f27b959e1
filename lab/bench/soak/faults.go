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
)

// fault makes one fault happen and takes it back. It returns when all is as it was
// before: the daemon up, the agents connected and in force, every block on both
// DataNodes after a DataNode was killed.
func (m *machine) fault(ctx context.Context, s Step) error {
	switch s.Kind {
	case KillDaemon:
		if err := m.daemon().Kill(); err != nil {
			return err
		}
		return errors.Join(wait(ctx, s.Lasts), m.startDaemon(ctx))
	case StopDaemon:
		return errors.Join(m.stopped(ctx, m.daemon().PID(), s.Lasts), m.awaitAgents(ctx, "enforce"))
	case KillDataNode:
		m.Hadoop.KillDataNode(s.Node)
		err := errors.Join(wait(ctx, s.Lasts), m.Hadoop.StartDataNode(ctx, s.Node))
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
		return wait(ctx, s.Lasts)
	}
	return fmt.Errorf("no such fault: %q", s.Kind)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stopped stops a process for a while. It goes on whatever happens.
func (m *machine) stopped(ctx context.Context, pid int, lasts time.Duration) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	err := wait(ctx, lasts)
	if cont := syscall.Kill(pid, syscall.SIGCONT); cont != nil {
		return errors.Join(err, fmt.Errorf("let process %d go on: %w", pid, cont))
	}
	return err
}

// garbage sends what the daemon must count and hang up on.
func (m *machine) garbage(ctx context.Context, bad daemon.Bad) error {
	const metric = "agent_bad_frames_total"
	before, err := m.daemon().Metric(ctx, metric)
	if err != nil {
		return err
	}
	if err := daemon.Refused(m.socket(), bad.Bytes, patience); err != nil {
		return fmt.Errorf("garbage (%s): %w", bad.Name, err)
	}
	return m.awaitMetric(ctx, metric, func(now float64) bool { return now > before })
}

// halfFrames are peers that begin a frame and stay; some of them say HELLO first.
func (m *machine) halfFrames(ctx context.Context, lasts time.Duration) error {
	hello, err := daemon.Hello(m.dataDir(0))
	if err != nil {
		return err
	}
	for _, bytes := range [][]byte{hello[:len(hello)/2], hello[:3], append(hello, 0, 12, 4, 1, 0, 0)} {
		c, err := net.Dial("unix", m.socket())
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write(bytes); err != nil {
			return err
		}
	}
	return wait(ctx, lasts)
}

// cut breaks an agent's connection and waits for the agent to be back.
func (m *machine) cut(ctx context.Context, which int) error {
	reconnects := func(ctx context.Context) (sum float64, err error) {
		for i := range Nodes {
			g, err := m.gates(ctx, i)
			if err != nil {
				return 0, err
			}
			sum += float64(g.Reconnects)
		}
		return sum, nil
	}
	before, err := reconnects(ctx)
	if err != nil {
		return err
	}
	if err := cutConnection(m.daemon().PID(), m.socket(), which); err != nil {
		return err
	}
	err = m.await(ctx, "an agent has connected again", func(ctx context.Context) (bool, error) {
		now, err := reconnects(ctx)
		return now > before, err
	})
	return errors.Join(err, m.awaitAgents(ctx, "enforce"))
}

// switchOff has the kill switch on for a while.
func (m *machine) switchOff(ctx context.Context, lasts time.Duration) error {
	if err := os.WriteFile(m.killSwitch(), nil, 0o644); err != nil {
		return err
	}
	err := errors.Join(m.awaitAgents(ctx, "off"), wait(ctx, lasts))
	return errors.Join(err, os.Remove(m.killSwitch()), m.awaitAgents(ctx, "enforce"))
}

// reweigh puts something else into the weights file for a while. What is refused
// must be counted; what is taken must be in force before it is taken back.
func (m *machine) reweigh(ctx context.Context, w weightsText, lasts time.Duration) error {
	if err := m.setWeights(ctx, w.text, w.refused); err != nil {
		return fmt.Errorf("weights file, %s: %w", w.name, err)
	}
	return errors.Join(wait(ctx, lasts), m.setWeights(ctx, goodWeights, false), m.awaitAgents(ctx, "enforce"))
}

func (m *machine) setWeights(ctx context.Context, text string, refused bool) error {
	const metric = "weights_reloads_total"
	label := `result="taken"`
	if refused {
		label = `result="refused"`
	}
	before, err := m.daemon().Metric(ctx, metric, label)
	if err != nil {
		return err
	}
	if err := m.daemon().SetWeights(text); err != nil {
		return err
	}
	return m.awaitMetric(ctx, metric, func(now float64) bool { return now > before }, label)
}

func (m *machine) awaitMetric(ctx context.Context, name string, holds func(float64) bool, labels ...string) error {
	return m.await(ctx, "the right value of "+name, func(ctx context.Context) (bool, error) {
		now, err := m.daemon().Metric(ctx, name, labels...)
		return holds(now), err
	})
}

// slower is what a slow disk's times are multiplied with.
const slower = 10

// slowDisk makes a disk slower for a while. It is as it was whatever happens.
func (m *machine) slowDisk(ctx context.Context, i int, lasts time.Duration) error {
	if err := m.Disks[i].SetModel(slow(m.setup.Disk)); err != nil {
		return err
	}
	return errors.Join(wait(ctx, lasts), m.Disks[i].SetModel(m.setup.Disk))
}

func slow(d disk.Model) disk.Model {
	d.BytesPerSecond /= slower
	d.SeekMin *= slower
	d.SeekMax *= slower
	return d
}
