package requests

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"penstock/core/sfq"
	"penstock/lab/scenario"
)

// Begin makes the scheduler for a scenario's command "new".
type Begin func(algorithm string, cfg sfq.Config) (Scheduler, error)

// Scenarios plays the testdata/*.txt files of the package under test. Below each command, indented,
// is what the scheduler decided. Requests have the names r1, r2, ... in the order of submission.
//
//	new ALGORITHM [depth=N] [flows=N] [lead=N]
//	flow NAME WEIGHT       AddFlow
//	remove NAME            RemoveFlow
//	weight NAME WEIGHT     SetWeight
//	queue NAME [Q=W ...]   SetQueue, the way from the root
//	submit NAME COST [xN]  Submit, N times
//	next                   Next
//	serve N                N times Next, each request completed at once
//	complete rN [COST]     Complete; without COST, at the submitted cost
//	cancel rN              Cancel
//	charge NAME COST [xN]  Charge, N times
//	void NAME              Void
//	trim                   Trim
//	depth N                SetDepth
//	dump                   String
func Scenarios(t *testing.T, begin Begin) {
	scenario.Test(t, func(t *testing.T) scenario.Stage {
		st := &stage{t: t, begin: begin, flows: map[string]sfq.Flow{}, names: map[sfq.Flow]string{}, handles: map[string]Handle{}, costs: map[string]int64{}}
		return st.run
	})
}

// stage is a scenario in progress.
type stage struct {
	t       *testing.T
	begin   Begin
	q       *Queues
	flows   map[string]sfq.Flow
	names   map[sfq.Flow]string
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

func answer(err error, otherwise string) string {
	if err != nil {
		return err.Error()
	}
	return otherwise
}

func (st *stage) run(words []string) string {
	arg := func(i int) string {
		if i >= len(words) {
			st.t.Fatalf("%q needs %d arguments", words, i)
		}
		return words[i]
	}
	times := func(i int) int64 {
		if i >= len(words) {
			return 1
		}
		return st.number(strings.TrimPrefix(words[i], "x"))
	}
	switch words[0] {
	case "new":
		return st.build(arg(1), words[2:])
	case "flow":
		f, err := st.q.AddFlow(int(st.number(arg(2))))
		if err == nil {
			st.flows[arg(1)], st.names[f] = f, arg(1)
		}
		return answer(err, fmt.Sprintf("flow %d", f))
	case "remove":
		return answer(st.q.RemoveFlow(st.flow(arg(1))), "")
	case "weight":
		return answer(st.q.SetWeight(st.flow(arg(1)), int(st.number(arg(2)))), "")
	case "queue":
		var way []sfq.Level
		for _, w := range words[2:] {
			name, weight, _ := strings.Cut(w, "=")
			way = append(way, sfq.Level{Name: name, Weight: int(st.number(weight))})
		}
		return answer(st.q.SetQueue(st.flow(arg(1)), way), "")
	case "submit":
		var names []string
		for range times(3) {
			ref := len(st.handles) + 1
			h, err := st.q.Submit(st.flow(arg(1)), st.number(arg(2)), uint64(ref))
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
		r, ok := st.q.Next()
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
		return answer(st.q.Complete(st.handles[arg(1)], cost), "")
	case "cancel":
		return answer(st.q.Cancel(st.handles[arg(1)]), "")
	case "charge":
		for range times(3) {
			if err := st.q.Charge(st.flow(arg(1)), st.number(arg(2))); err != nil {
				return err.Error()
			}
		}
		return ""
	case "void":
		return answer(st.q.Void(st.flow(arg(1))), "")
	case "trim":
		st.q.Trim()
		return ""
	case "depth":
		st.q.SetDepth(int(st.number(arg(1))))
		return fmt.Sprintf("depth %d", st.q.Depth())
	case "dump":
		return st.dump()
	}
	st.t.Fatalf("unknown command %q", words)
	return ""
}

func (st *stage) build(algorithm string, settings []string) string {
	cfg, depth := sfq.Config{}, 1
	for _, w := range settings {
		key, value, _ := strings.Cut(w, "=")
		n := st.number(value)
		switch key {
		case "depth":
			depth = int(n)
		case "flows":
			cfg.MaxFlows = int(n)
		case "lead":
			cfg.MaxLead = n
		default:
			st.t.Fatalf("unknown setting %q", key)
		}
	}
	s, err := st.begin(algorithm, cfg)
	if err != nil {
		return err.Error()
	}
	st.q = New(s, depth)
	return ""
}

// flow returns a flow by name. For a name that was not added, it returns a flow that does not
// exist.
func (st *stage) flow(name string) sfq.Flow {
	if f, ok := st.flows[name]; ok {
		return f
	}
	return -1
}

// now prints the virtual time if the algorithm has one.
func (st *stage) now() string {
	if s, ok := st.q.Scheduler.(interface{ VirtualTime() string }); ok {
		return ", v " + s.VirtualTime()
	}
	return ""
}

// dump prints the scheduler's state and the queued requests.
func (st *stage) dump() string {
	out := st.q.String()
	for f := range sfq.Flow(len(st.names)) {
		if queue := st.q.queues[f]; len(queue) > 0 {
			out += "queued of " + st.names[f] + ":"
			for _, r := range queue {
				out += fmt.Sprintf(" r%d(%d)", r.Ref, r.Cost)
			}
			out += "\n"
		}
	}
	return out
}

func (st *stage) refusal() string {
	if st.q.Waiting() > 0 {
		return fmt.Sprintf("none: %d of %d outstanding", st.q.Outstanding(), st.q.Depth())
	}
	return "none: nothing is queued"
}

// serve prints the flows that were served, in order, and the cost that each flow got.
func (st *stage) serve(n int64) string {
	var order []string
	service := make([]int64, 0)
	for range n {
		r, ok := st.q.Next()
		if !ok {
			order = append(order, st.refusal())
			break
		}
		order = append(order, st.names[r.Flow])
		for int(r.Flow) >= len(service) {
			service = append(service, 0)
		}
		service[r.Flow] += r.Cost
		if err := st.q.Complete(r.Handle, r.Cost); err != nil {
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
			sums += fmt.Sprintf(" %s %d", st.names[sfq.Flow(f)], cost)
		}
	}
	return strings.Join(append(lines, sums), "\n")
}
