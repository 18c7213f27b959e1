// Package contenders lets HDFS clients of several applications contend for the disks of DataNodes.
//
// A task is one client of an application. It writes files or reads files, one after the other and
// without a pause. The only replica of each file is on the task's node. All clients run in one JVM
// (package client), and name themselves as tasks of their application.
package contenders

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"penstock/lab/client"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
	"penstock/lab/stand"
)

// Task identifies a task. Number distinguishes the tasks of an application on a node.
type Task struct {
	Application int
	Node        int
	Number      int
	Reads       bool
}

// Tasks returns n tasks of an application on each of the nodes.
func Tasks(application, n int, reads bool, nodes ...int) (all []Task) {
	for _, node := range nodes {
		for i := range n {
			all = append(all, Task{application, node, i, reads})
		}
	}
	return all
}

// Flow returns the name of an application's flows.
func Flow(application int) string { return client.Application(application) }

// Dir returns the folder of HDFS that holds an application's files.
func Dir(application int) string { return fmt.Sprintf("/application-%d", application) }

// Field is a running cluster on which tasks contend. Its stand must have Hadoop and Clients.
type Field struct {
	*stand.Stand
	block, file int64
	placed      map[Task][]written
	loads       int
	policy      string // the last text given to Apply
	version     uint64 // of that policy at the broker
}

// On returns the field of a stand. Files have the given size, in blocks of the given size, in bytes.
func On(s *stand.Stand, block, file int64) *Field {
	return &Field{Stand: s, block: block, file: file, placed: map[Task][]written{}, version: 1}
}

// written is a file that a task has written completely.
type written struct {
	path string
	seed uint64
}

// Load is a group of running tasks.
type Load struct {
	field  *Field
	ending context.Context // when this context ends, tasks end after their current files
	end    context.CancelFunc
	group  sync.WaitGroup

	mu      sync.Mutex
	failed  error
	files   []written
	longest time.Duration
}

// Start starts tasks. They run until Stop. Readers read the files that Place has written, and fail
// when they have read all of them.
func (f *Field) Start(ctx context.Context, tasks []Task) *Load {
	f.loads++
	l := &Load{field: f}
	l.ending, l.end = context.WithCancel(context.WithoutCancel(ctx))
	for _, t := range tasks {
		step := func(i int) error {
			return l.put(ctx, t, fmt.Sprintf("%s/%d-%d-%d-%d", Dir(t.Application), f.loads, t.Node, t.Number, i))
		}
		if replicas := f.placed[t]; t.Reads {
			step = func(i int) error {
				if i == len(replicas) {
					return fmt.Errorf("has read all of its %d files, which would be cached the second time", i)
				}
				return l.transfer(ctx, "get", fmt.Sprintf("path=%s attempt=%s seed=%d", replicas[i].path, client.Attempt(t.Application), replicas[i].seed))
			}
		}
		l.group.Go(func() { l.run(t, step) })
	}
	return l
}

// run processes file after file.
func (l *Load) run(t Task, step func(i int) error) {
	for i := 0; l.ending.Err() == nil; i++ {
		if err := step(i); err != nil {
			l.mu.Lock()
			l.failed = errors.Join(l.failed, fmt.Errorf("a task of application %d on node %d: %w", t.Application, t.Node, err))
			l.mu.Unlock()
			return
		}
	}
}

func (l *Load) put(ctx context.Context, t Task, path string) error {
	w := written{path: path, seed: rand.Uint64N(1 << 62)}
	err := l.transfer(ctx, "put", l.field.putArgs(t, w))
	if err == nil {
		l.mu.Lock()
		l.files = append(l.files, w)
		l.mu.Unlock()
	}
	return err
}

func (f *Field) putArgs(t Task, w written) string {
	return fmt.Sprintf("path=%s attempt=%s bytes=%d seed=%d block=%d replication=1 on=%s",
		w.path, client.Attempt(t.Application), f.file, w.seed, f.block, f.Hadoop.DataNodeAddress(t.Node))
}

// transfer performs an operation and records its longest pause.
func (l *Load) transfer(ctx context.Context, operation, args string) error {
	ended := make(chan error, 1)
	last := time.Now()
	id := l.field.Clients.Do(operation, args, func(event, value string) {
		now := time.Now()
		l.mu.Lock()
		l.longest, last = max(l.longest, now.Sub(last)), now
		l.mu.Unlock()
		switch event {
		case "done":
			ended <- nil
		case "error":
			ended <- errors.New(value)
		}
	})
	defer l.field.Clients.Forget(id)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// End lets the tasks end after their current files. It does not wait for them.
func (l *Load) End() { l.end() }

// Stop ends the tasks after their current files, and returns their errors.
func (l *Load) Stop() error {
	l.end()
	l.group.Wait()
	return l.Failed()
}

// Failed returns the errors of the tasks so far.
func (l *Load) Failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Longest returns the longest time so far in which a task made no step of 256 KiB.
func (l *Load) Longest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.longest
}

// Verify reads all files that the tasks of an ended load have written, and returns their number.
func (l *Load) Verify(ctx context.Context) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.files {
		if err := l.field.Clients.Run(ctx, "get", fmt.Sprintf("path=%s seed=%d", w.path, w.seed)); err != nil {
			return 0, fmt.Errorf("%s: %w", w.path, err)
		}
	}
	return len(l.files), nil
}

// Place writes files for the readers among the tasks, with at least the given number of bytes for
// each, and drops them from the page cache. It keeps existing files.
func (f *Field) Place(ctx context.Context, tasks []Task, bytes int64) error {
	for _, t := range tasks {
		if !t.Reads {
			continue
		}
		for have := len(f.placed[t]); int64(have)*f.file < bytes; have++ {
			w := written{path: fmt.Sprintf("%s/placed-%d-%d-%d", Dir(t.Application), t.Node, t.Number, have), seed: rand.Uint64N(1 << 62)}
			if err := f.Clients.Run(ctx, "put", f.putArgs(t, w)); err != nil {
				return fmt.Errorf("place %s: %w", w.path, err)
			}
			f.placed[t] = append(f.placed[t], w)
		}
		if err := f.Disks[t.Node].Forget(); err != nil {
			return err
		}
	}
	return nil
}

// Remove deletes all files of applications, also those of Place.
func (f *Field) Remove(ctx context.Context, applications ...int) (err error) {
	for _, a := range applications {
		err = errors.Join(err, f.Hadoop.FS().Remove(ctx, Dir(a)))
		for t := range f.placed {
			if t.Application == a {
				delete(f.placed, t)
			}
		}
	}
	return err
}

// Clear deletes all files of an application, and keeps their folder.
func (f *Field) Clear(ctx context.Context, application int) error {
	files, err := f.Hadoop.FS().List(ctx, Dir(application))
	for _, one := range files {
		err = errors.Join(err, f.Hadoop.FS().Remove(ctx, one.Path))
	}
	return err
}

// Owners returns the judge's owner of each block file: the flow of the application that has the
// block's file, according to the NameNode.
func (f *Field) Owners(ctx context.Context, applications ...int) (judge.Owner, error) {
	owners := map[string]string{}
	for _, a := range applications {
		names, err := f.Hadoop.BlockNames(ctx, Dir(a))
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("the NameNode knows no blocks of %s", Dir(a))
		}
		for _, name := range names {
			owners[name] = Flow(a)
		}
	}
	return func(path string) string { return owners[hadoop.BlockName(path)] }, nil
}

// Apply puts a policy in force on every node. The stand's broker must have read its policy from
// PolicyFile, and only Apply may change that file.
func (f *Field) Apply(ctx context.Context, policy string) error {
	if policy != f.policy {
		if err := f.SetPolicy(policy); err != nil {
			return err
		}
		f.policy = policy
		f.version++
	}
	return f.InForce(ctx, f.version, true)
}

// InForce waits until the broker's totals are in force on every running node, with at least the
// given version of the broker's policy. If want is false, it waits until the totals are in force on
// no node.
func (f *Field) InForce(ctx context.Context, policy uint64, want bool) error {
	for i, node := range f.Nodes {
		if node == nil || !node.Alive() {
			continue
		}
		if err := f.Await(ctx, fmt.Sprintf("totals in force on node %d: %v", i, want), func(ctx context.Context) (bool, error) {
			doc, err := f.Status(ctx, i)
			if err != nil {
				return false, err
			}
			return doc.Cluster.InForce == want && (!want || doc.Cluster.Policy >= policy), nil
		}); err != nil {
			return err
		}
	}
	return nil
}
