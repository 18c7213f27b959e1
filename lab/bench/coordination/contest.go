package coordination

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"penstock/lab/contenders"
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
func (a Application) Flow() string { return contenders.Flow(a.Number) }

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

// fileBytes is a file's size.
const fileBytes = 2 * block

// tasksOf returns the tasks of a contest.
func tasksOf(applications []Application) (all []contenders.Task) {
	for _, a := range applications {
		all = append(all, contenders.Tasks(a.Number, tasks, a.Reads, a.On...)...)
	}
	return all
}

// Work starts every application's tasks on each of its nodes. They run until the load is stopped.
func (m *Machine) Work(ctx context.Context, applications []Application) *contenders.Load {
	return m.Start(ctx, tasksOf(applications))
}

// remove deletes the files of a contest's writers.
func (m *Machine) remove(ctx context.Context, applications []Application) (err error) {
	for _, a := range applications {
		if !a.Reads {
			err = errors.Join(err, m.Remove(ctx, a.Number))
		}
	}
	return err
}

// owners returns the owner of each block file.
func (m *Machine) owners(ctx context.Context, applications []Application) (judge.Owner, error) {
	var numbers []int
	for _, a := range applications {
		numbers = append(numbers, a.Number)
	}
	return m.Owners(ctx, numbers...)
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
func (m *Machine) Judge(ctx context.Context, contest []Application, window judge.Window) (Outcome, error) {
	o := Outcome{Totals: make([]float64, len(contest)), Busy: 1}
	owner, err := m.owners(ctx, contest)
	if err != nil {
		return o, err
	}
	seconds := float64(window.To-window.From) / 1e9
	for node, d := range m.Disks {
		accounts, err := judge.Disk(d, owner, window)
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
