package limit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/core/limit"
	"penstock/lab/scenario"
)

// TestScenarios shows which requests a bucket lets through, and when. After a change of the rules,
// rewrite the files with `go test ./core/limit -run TestScenarios -update`.
//
//	new rate=KIBPERSECOND [credit=TIME] [debt=TIME]
//	at TIME                 sets the clock; prints nothing
//	take KIB [xN]           N requests, each as soon as it may pass; advances the clock
//	ask KIB                 one request now
//	charge KIB              may be negative
//	rate KIBPERSECOND
func TestScenarios(t *testing.T) {
	scenario.Test(t, func(t *testing.T) scenario.Stage {
		st := &stage{t: t}
		return st.do
	})
}

type stage struct {
	t   *testing.T
	b   *limit.Bucket
	now time.Duration
}

func (st *stage) kib(word string) int64 { return int64(scenario.Number(st.t, word) * 1024) }

func (st *stage) do(words []string) string {
	switch args := words[1:]; words[0] {
	case "new":
		cfg := limit.Config{Rate: st.kib(scenario.Value(args, "rate"))}
		if v := scenario.Value(args, "credit"); v != "" {
			cfg.Credit = scenario.Duration(st.t, v)
		}
		if v := scenario.Value(args, "debt"); v != "" {
			cfg.Debt = scenario.Duration(st.t, v)
		}
		b, err := limit.New(cfg)
		if err != nil {
			return err.Error()
		}
		st.b = b
	case "at":
		st.now = scenario.Duration(st.t, args[0])
	case "take":
		return st.take(args)
	case "ask":
		if wait := st.b.Take(st.now, st.kib(args[0])); wait > 0 {
			return fmt.Sprintf("not before %v", st.now+wait)
		}
		return fmt.Sprintf("taken at %v", st.now)
	case "charge":
		st.b.Charge(st.now, st.kib(args[0]))
	case "rate":
		if err := st.b.SetRate(st.now, st.kib(args[0])); err != nil {
			return err.Error()
		}
	default:
		st.t.Fatalf("unknown command %q", words[0])
	}
	return ""
}

func (st *stage) take(args []string) string {
	times := 1
	if len(args) > 1 {
		times = int(scenario.Number(st.t, strings.TrimPrefix(args[1], "x")))
	}
	var out strings.Builder
	for range times {
		st.now += st.b.Wait(st.now)
		if wait := st.b.Take(st.now, st.kib(args[0])); wait > 0 {
			st.t.Fatalf("at %v, when the request should pass, it has to wait another %v", st.now, wait)
		}
		fmt.Fprintf(&out, "taken at %v\n", st.now)
	}
	return out.String()
}
