package coordination

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"gonum.org/v1/gonum/floats"

	"penstock/lab/client"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
	"penstock/lab/sim/optimum"
)

// Application is an application of a contest. Its tasks run on some of the nodes only. Each task
// writes files or reads files. The only replica of each file is on the task's own node.
type Application struct {
	Number int   `json:"number"`
	Weight int   `json:"weight"`
	On     []int `json:"on"`
	Reads  bool  `json:"reads"`
}

// Flow returns the name of the application's flows.
func (a Application) Flow() string { return client.Application(a.Number) }

func (a Application) dir() string { return fmt.Sprintf("/application-%d", a.Number) }

// Uneven is a contest in which local shares divide the disks very differently from what the weights
// demand.
var Uneven = []Application{{1, 2, []int{0}, false}, {2, 3, []int{0, 1, 2}, false}, {3, 3, []int{1, 2}, false}}

// Alike returns the contest with weights that slow down all applications alike: each weight is the
// service, in disks, that the application reaches alone.
var Alike = []Application{{1, 1, []int{0}, false}, {2, 3, []int{0, 1, 2}, false}, {3, 2, []int{1, 2}, true}}

// tasks is the number of an application's tasks on a node.
const tasks = 3

// Policy returns a policy with the applications' weights.
func Policy(contest []Application) string {
	text := "rules:\n"
	for _, a := range contest {
		text += fmt.Sprintf("  - {flow: %s, weight: %d}\n", a.Flow(), a.Weight)
	}
	return text
}

// Load is a group of running tasks.
type Load struct {
	ending context.Context // when this context ends, tasks end after their current files
	end    context.CancelFunc
	group  sync.WaitGroup

	mu      sync.Mutex
	failed  error
	files   []file // written
	longest time.Duration
}

// file is a file that a task has written completely.
type file struct {
	path string
	seed uint64
}

// fileBytes is a file's size.
const fileBytes = 2 * block

// Longest returns the longest time so far in which a task made no step of 64 KiB.
func (l *Load) Longest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.longest
}

// Verify reads all files that the tasks of an ended load have written, and returns their number.
func (l *Load) Verify(ctx context.Context, m *Machine) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.files {
		if err := m.Clients.Run(ctx, "get", fmt.Sprintf("path=%s seed=%d", f.path, f.seed)); err != nil {
			return 0, fmt.Errorf("%s: %w", f.path, err)
		}
	}
	return len(l.files), nil
}

// Work starts every application's tasks on each of its nodes. They run until Stop. round is part of
// the written files' names, so that loads with different rounds write different files. Readers read
// the files that Place has written.
func (m *Machine) Work(ctx context.Context, contest []Application, round int) *Load {
	l := &Load{}
	l.ending, l.end = context.WithCancel(context.WithoutCancel(ctx))
	for _, a := range contest {
		for _, node := range a.On {
			for task := range tasks {
				step := func(i int) error {
					return l.put(ctx, m, a, node, fmt.Sprintf("%s/%d-%d-%d-%d", a.dir(), round, node, task, i))
				}
				if replicas := m.placed[place{a.Number, node, task}]; a.Reads {
					step = func(i int) error {
						if i == len(replicas) {
							return fmt.Errorf("has read all of its %d files, which would be cached the second time", i)
						}
						return l.get(ctx, m, a, replicas[i])
					}
				}
				l.group.Go(func() { l.run(a, node, step) })
			}
		}
	}
	return l
}

// run processes file after file.
func (l *Load) run(a Application, node int, step func(i int) error) {
	for i := 0; l.ending.Err() == nil; i++ {
		if err := step(i); err != nil {
			l.mu.Lock()
			l.failed = fmt.Errorf("a task of application %d on node %d: %w", a.Number, node, err)
			l.mu.Unlock()
			return
		}
	}
}

func (l *Load) put(ctx context.Context, m *Machine, a Application, node int, path string) error {
	f := file{path: path, seed: rand.Uint64N(1 << 62)}
	err := l.transfer(ctx, m, "put", m.putArgs(a, node, f))
	if err == nil {
		l.mu.Lock()
		l.files = append(l.files, f)
		l.mu.Unlock()
	}
	return err
}

func (m *Machine) putArgs(a Application, node int, f file) string {
	return fmt.Sprintf("path=%s attempt=%s bytes=%d seed=%d block=%d replication=1 on=%s",
		f.path, client.Attempt(a.Number), fileBytes, f.seed, block, m.Hadoop.DataNodeAddress(node))
}

func (l *Load) get(ctx context.Context, m *Machine, a Application, f file) error {
	return l.transfer(ctx, m, "get", fmt.Sprintf("path=%s attempt=%s seed=%d", f.path, client.Attempt(a.Number), f.seed))
}

// transfer performs an operation and records its longest pause.
func (l *Load) transfer(ctx context.Context, m *Machine, operation, args string) error {
	ended := make(chan error, 1)
	last := time.Now()
	id := m.Clients.Do(operation, args, func(event, value string) {
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
	defer m.Clients.Forget(id)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// place identifies a task by its application, its node and its number on that node.
type place struct{ application, node, task int }

// Place writes files for the readers of a contest, with at least the given number of bytes for each
// task, and drops them from the page cache. It keeps existing files.
func (m *Machine) Place(ctx context.Context, contest []Application, bytes int64) error {
	for _, a := range contest {
		if !a.Reads {
			continue
		}
		for _, node := range a.On {
			for task := range tasks {
				at := place{a.Number, node, task}
				for have := len(m.placed[at]); int64(have)*fileBytes < bytes; have++ {
					f := file{path: fmt.Sprintf("%s/placed-%d-%d-%d", a.dir(), node, task, have), seed: rand.Uint64N(1 << 62)}
					if err := m.Clients.Run(ctx, "put", m.putArgs(a, node, f)); err != nil {
						return fmt.Errorf("place %s: %w", f.path, err)
					}
					m.placed[at] = append(m.placed[at], f)
				}
			}
			if err := m.Disks[node].Forget(); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove deletes the files of a contest's writers.
func (m *Machine) remove(ctx context.Context, contest []Application) (err error) {
	for _, a := range contest {
		if !a.Reads {
			err = errors.Join(err, m.Hadoop.FS().Remove(ctx, a.dir()))
		}
	}
	return err
}

// Stop ends the tasks after their current files, and returns their errors.
func (l *Load) Stop() error {
	l.end()
	l.group.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Owners returns the owner of each block, according to the NameNode.
func (m *Machine) Owners(ctx context.Context, contest []Application) (map[string]int, error) {
	owners := map[string]int{}
	for i, a := range contest {
		names, err := m.Hadoop.BlockNames(ctx, a.dir())
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("the NameNode knows no blocks of %s", a.dir())
		}
		for _, name := range names {
			owners[name] = i
		}
	}
	return owners, nil
}

// Outcome is the result of a window from the disks' logs.
type Outcome struct {
	// Totals holds each application's service from all disks. The unit is one fully used disk.
	Totals []float64 `json:"totals"`
	// ByNode is the part of each disk's service that each application had.
	ByNode [][]float64 `json:"by_node"`
	// Misplaced is the part of the service that went to applications without an entitlement to it.
	Misplaced float64 `json:"misplaced"`
	// Busy is the smallest utilisation of a disk with tasks, as part of the window.
	Busy float64 `json:"busy"`
}

// Judge returns the outcome of a window. It attributes the requests in the disks' logs to
// applications by the extents of block files.
func (m *Machine) Judge(contest []Application, owners map[string]int, window judge.Window) (Outcome, error) {
	o := Outcome{Totals: make([]float64, len(contest)), Busy: 1}
	seconds := float64(window.To-window.From) / 1e9
	for node, d := range m.Disks {
		accounts, err := judge.Disk(d, func(path string) string {
			if i, ok := owners[hadoop.BlockName(path)]; ok {
				return contest[i].Flow()
			}
			return ""
		}, window)
		if err != nil {
			return o, err
		}
		account := accounts[0]
		all, had, wanted := 0.0, make([]float64, len(contest)), false
		for i, a := range contest {
			had[i] = account.Owners[a.Flow()].Service.Seconds()
			all += had[i]
			for _, on := range a.On {
				wanted = wanted || on == node
			}
		}
		if !wanted {
			o.ByNode = append(o.ByNode, had)
			continue
		}
		if all == 0 {
			return o, fmt.Errorf("the disk of node %d served none of the applications", node)
		}
		o.Busy = min(o.Busy, all/seconds)
		for i := range had {
			o.Totals[i] += had[i] / seconds
			had[i] /= all
		}
		o.ByNode = append(o.ByNode, had)
	}
	due, err := Due(contest)
	if err != nil {
		return o, err
	}
	all, allDue := floats.Sum(o.Totals), floats.Sum(due)
	for i := range due {
		o.Misplaced += math.Abs(o.Totals[i]/all-due[i]/allDue) / 2
	}
	return o, nil
}

// Due returns each application's service in the optimum for the placement, in fully used disks.
func Due(contest []Application) ([]float64, error) {
	var seekers []optimum.Seeker
	for _, a := range contest {
		seekers = append(seekers, optimum.Seeker{Weight: float64(a.Weight), Devices: a.On})
	}
	return optimum.Totals(seekers, slices.Repeat([]float64{1}, Nodes))
}
