package foreign_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/core/foreign"
	"penstock/lab/scenario"
)

// TestScenarios runs the scenarios in testdata/*.txt, which are read from top to bottom. A scenario
// has comments and commands; below each command are the estimate and the truth, indented. After a
// change of the rules, rewrite the files with `go test ./core/foreign -run TestScenarios -update`.
//
//	new                                   a disk of 12 MB/s with seeks of 10 ms
//	own read|write KIB piece=KIB depth=N  the caller keeps N quanta in flight, in pieces
//	kernel read|write KIB rate=N          kernel I/O for the caller's flows, outside of the quanta
//	stream read|write KIB rate=N burst=N  foreign sequential requests, N a second
//	random read|write KIB rate=N          foreign requests at random places, N a second
//	end own|others                        stops these requests
//	other                                 another device under the same name
//	correct SCALE                         sets the scale of the model's costs
//	look [LENGTH] [xN]                    evaluates after a second, or after LENGTH
func TestScenarios(t *testing.T) {
	scenario.Test(t, func(t *testing.T) scenario.Stage {
		st := &stage{t: t}
		return st.run
	})
}

// stage is the state of one running scenario.
type stage struct {
	t *testing.T
	d *disk
	e *foreign.Estimate
}

func (st *stage) run(words []string) string {
	switch words[0] {
	case "new":
		st.d, st.e = newDisk(1), foreign.New(hdd)
	case "own", "kernel", "stream", "random":
		st.d.loads = append(st.d.loads, st.load(words))
	case "end":
		var left []*load
		for _, l := range st.d.loads {
			if l.foreign != (words[1] == "others") {
				left = append(left, l)
			}
		}
		st.d.loads = left
	case "other":
		st.d.counters = foreign.Counters{}
	case "correct":
		st.e.Correct(scenario.Number(st.t, words[1]))
	case "look":
		return st.look(words[1:])
	default:
		st.t.Fatalf("unknown command %q", words)
	}
	return ""
}

func (st *stage) load(words []string) *load {
	write, size := words[1] == "write", int64(scenario.Number(st.t, words[2]))*kib
	number := func(key string) float64 { return scenario.Number(st.t, scenario.Value(words, key)) }
	switch words[0] {
	case "own":
		return own(write, size, int64(number("piece"))*kib, int(number("depth")))
	case "stream":
		return stream(write, size, number("rate"), int(number("burst")))
	case "kernel":
		l := scattered(write, size, number("rate"))
		l.foreign, l.moved = false, true
		return l
	}
	return scattered(write, size, number("rate"))
}

func (st *stage) look(args []string) string {
	length, times := time.Second, 1
	for _, a := range args {
		if n, ok := strings.CutPrefix(a, "x"); ok {
			times = int(scenario.Number(st.t, n))
		} else {
			length = scenario.Duration(st.t, a)
		}
	}
	var out strings.Builder
	for range times {
		s := st.d.look(st.e, length)
		fmt.Fprintf(&out, "truth %.2f s, cost %.2f s, part %.2f, KiB read %d, written %d\n",
			s.truth.Seconds(), s.Cost.Seconds(), s.Part, s.Bytes[0]/kib, s.Bytes[1]/kib)
	}
	return out.String()
}
