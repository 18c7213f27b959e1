package sfq

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"penstock/testbed/scenario"
)

// The scenarios in testdata/*.txt are read from top to bottom: a comment, a
// command, and indented under it what the scheduler decided. Requests are called
// r1, r2, ... in the order of submission. After a change of rules rewrite them
// with `go test ./core/sfq -run TestScenarios -update` and read the difference.
//
//	new ALGORITHM [depth=N] [flows=N] [queue=N]
//	flow NAME WEIGHT       AddFlow
//	remove NAME            RemoveFlow
//	weight NAME WEIGHT     SetWeight
//	queue NAME [Q=W ...]   SetQueue, the way from the root
//	submit NAME COST [xN]  Submit, N times
//	next                   Next
//	serve N                N times Next, each request completed at once
//	complete rN [COST]     Complete, at the submitted cost if none is given
//	cancel rN              Cancel
//	charge NAME COST       Charge
//	depth N                SetDepth
//	dump                   String
func TestScenarios(t *testing.T) {
	scenario.Test(t, func(t *testing.T) scenario.Stage {
		st := &stage{t: t, flows: map[string]Flow{}, names: map[Flow]string{}, handles: map[string]Handle{}, costs: map[string]int64{}}
		return st.run
	})
}

// stage is one scenario under way.
type stage struct {
	t       *testing.T
	s       Scheduler
	flows   map[string]Flow
	names   map[Flow]string
	handles map[string]Handle
	costs   map[string]int64
}

func (st *stage) number(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		st.t.Fatalf("%q is not a number", word)
	}
	return n
}

func (st *stage) run(words []string) string {
	arg := func(i int) string {
		if i >= len(words) {
			st.t.Fatalf("%q needs %d arguments", words, i)
		}
		return words[i]
	}
	answer := func(err error, otherwise string) string {
		if err != nil {
			return err.Error()
		}
		return otherwise
	}
	switch words[0] {
	case "new":
		cfg := Config{Algorithm: arg(1)}
		for _, w := range words[2:] {
			key, value, _ := strings.Cut(w, "=")
			n := int(st.number(value))
			switch key {
			case "depth":
				cfg.Depth = n
			case "flows":
				cfg.MaxFlows = n
			case "queue":
				cfg.MaxQueued = n
			default:
				st.t.Fatalf("unknown setting %q", key)
			}
		}
		s, err := New(cfg)
		st.s = s
		return answer(err, "")
	case "flow":
		f, err := st.s.AddFlow(int(st.number(arg(2))))
		if err == nil {
			st.flows[arg(1)], st.names[f] = f, arg(1)
		}
		return answer(err, fmt.Sprintf("flow %d", f))
	case "remove":
		return answer(st.s.RemoveFlow(st.flow(arg(1))), "")
	case "weight":
		return answer(st.s.SetWeight(st.flow(arg(1)), int(st.number(arg(2)))), "")
	case "queue":
		var way []Level
		for _, w := range words[2:] {
			name, weight, _ := strings.Cut(w, "=")
			way = append(way, Level{Name: name, Weight: int(st.number(weight))})
		}
		return answer(st.s.(Queues).SetQueue(st.flow(arg(1)), way), "")
	case "submit":
		times := int64(1)
		if len(words) > 3 {
			times = st.number(strings.TrimPrefix(words[3], "x"))
		}
		var names []string
		for range times {
			ref := len(st.handles) + 1
			h, err := st.s.Submit(st.flow(arg(1)), st.number(arg(2)), uint64(ref))
			if err != nil {
				names = append(names, err.Error())
				break
			}
			name := "r" + strconv.Itoa(ref)
			st.handles[name], st.costs[name] = h, st.number(arg(2))
			names = append(names, name)
		}
		return strings.Join(names, " ")
	case "next":
		r, ok := st.s.Next()
		if !ok {
			return st.refusal()
		}
		return fmt.Sprintf("r%d of %s%s", r.Ref, st.names[r.Flow], st.now())
	case "serve":
		return st.serve(st.number(arg(1)))
	case "complete":
		cost := st.costs[arg(1)]
		if len(words) > 2 {
			cost = st.number(words[2])
		}
		return answer(st.s.Complete(st.handles[arg(1)], cost), "")
	case "cancel":
		return answer(st.s.Cancel(st.handles[arg(1)]), "")
	case "charge":
		return answer(st.s.Charge(st.flow(arg(1)), st.number(arg(2))), "")
	case "depth":
		st.s.SetDepth(int(st.number(arg(1))))
		return fmt.Sprintf("depth %d", st.s.Depth())
	case "dump":
		return st.s.String()
	}
	st.t.Fatalf("unknown command %q", words)
	return ""
}

// flow returns a flow by name, and one that does not exist for a name not added.
func (st *stage) flow(name string) Flow {
	if f, ok := st.flows[name]; ok {
		return f
	}
	return -1
}

// now prints the virtual time, where the algorithm has one.
func (st *stage) now() string {
	if s, ok := st.s.(*sfqd); ok {
		return ", v " + s.queues[0].v.String()
	}
	return ""
}

func (st *stage) refusal() string {
	if st.s.Waiting() > 0 {
		return fmt.Sprintf("none: %d of %d outstanding", st.s.Outstanding(), st.s.Depth())
	}
	return "none: nothing is queued"
}

// serve prints who was served in which order, and the cost that each got.
func (st *stage) serve(n int64) string {
	var order []string
	service := make([]int64, 0)
	for range n {
		r, ok := st.s.Next()
		if !ok {
			order = append(order, st.refusal())
			break
		}
		order = append(order, st.names[r.Flow])
		for int(r.Flow) >= len(service) {
			service = append(service, 0)
		}
		service[r.Flow] += r.Cost
		if err := st.s.Complete(r.Handle, r.Cost); err != nil {
			st.t.Fatal(err)
		}
	}
	var lines []string
	for len(order) > 0 {
		k := min(len(order), 20)
		lines = append(lines, strings.Join(order[:k], " "))
		order = order[k:]
	}
	sums := "service:"
	for f, cost := range service {
		if cost > 0 {
			sums += fmt.Sprintf(" %s %d", st.names[Flow(f)], cost)
		}
	}
	return strings.Join(append(lines, sums), "\n")
}
