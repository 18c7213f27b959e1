package stand

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"penstock/lab/disk"
	"penstock/lab/poll"
	"penstock/node/status"
)

// Await calls the function holds again and again until the function returns true, or until Patience
// has passed. An error of holds does not end the wait. If the time runs out, Await's error contains
// the last error of holds.
func (s *Stand) Await(ctx context.Context, what string, holds func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	var last error
	err := poll.Until(ctx, 50*time.Millisecond, func() (ok bool, _ error) {
		ok, last = holds(ctx)
		return ok && last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("not within %v: %s: %w", Patience, what, errors.Join(last, err))
	}
	return nil
}

// awaitNode waits, like Await, for something that daemon i must do. It fails at once if the daemon
// ends.
func (s *Stand) awaitNode(ctx context.Context, i int, what string, holds func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	node := s.Nodes[i]
	go func() {
		select {
		case <-node.Exited():
			cancel(fmt.Errorf("the daemon has ended: see %s", node.Log))
		case <-ctx.Done():
		}
	}()
	err := s.Await(ctx, what, holds)
	if err != nil && context.Cause(ctx) != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	return err
}

// AwaitAgents waits until n agents of servers (DataNodes and NodeManagers) are connected to
// daemon i. It fails at once if the daemon ends.
func (s *Stand) AwaitAgents(ctx context.Context, i, n int) error {
	return s.awaitNode(ctx, i, fmt.Sprintf("%d agents at daemon %d", n, i), func(ctx context.Context) (bool, error) {
		doc, err := s.Status(ctx, i)
		if err != nil {
			return false, err
		}
		servers := 0
		for _, a := range doc.Agents {
			if a.Role == "datanode" || a.Role == "nodemanager" {
				servers++
			}
		}
		if servers < n {
			return false, fmt.Errorf("%d are connected", servers)
		}
		return true, nil
	})
}

// Status returns the status document of daemon i.
func (s *Stand) Status(ctx context.Context, i int) (*status.Document, error) {
	return status.Fetch(ctx, s.Nodes[i].Address)
}

// SetWeights replaces the weights file of daemon i and waits until the new weights are in force. It
// fails at once if the daemon ends.
func (s *Stand) SetWeights(ctx context.Context, i int, text string) error {
	before, err := s.Status(ctx, i)
	if err != nil {
		return err
	}
	if err := s.Nodes[i].SetWeights(text); err != nil {
		return err
	}
	return s.awaitNode(ctx, i, "the daemon takes its weights", func(ctx context.Context) (bool, error) {
		doc, err := s.Status(ctx, i)
		return err == nil && doc.Weights.Taken > before.Weights.Taken, err
	})
}

// PolicyFile returns the path of the file that SetPolicy writes.
func (s *Stand) PolicyFile() string { return s.Path("policy.yaml") }

// SetPolicy replaces the policy file by renaming a new file, so a reader never sees an incomplete
// policy.
func (s *Stand) SetPolicy(text string) error {
	if err := os.WriteFile(s.PolicyFile()+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(s.PolicyFile()+".new", s.PolicyFile())
}

// SetModel changes the model of the given disks, or of all disks if none is given.
func (s *Stand) SetModel(m disk.Model, disks ...*disk.Disk) error {
	if len(disks) == 0 {
		disks = s.Disks
	}
	var errs []error
	for _, d := range disks {
		errs = append(errs, d.SetModel(m))
	}
	return errors.Join(errs...)
}

// Forget writes back the disks' files and drops them from the page cache. The pages of other files
// stay in the page cache.
func (s *Stand) Forget() error {
	var errs []error
	for _, d := range s.Disks {
		errs = append(errs, d.Forget())
	}
	return errors.Join(errs...)
}
