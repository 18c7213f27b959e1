package experiment

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestRowTurns(t *testing.T) {
	rows := []string{"a", "b", "c"}
	turns := RowTurns(rows, 2, func(t RowTurn) bool { return t == RowTurn{"b", 1} })
	if want := []RowTurn{{"a", 1}, {"c", 1}, {"c", 2}, {"b", 2}, {"a", 2}}; !slices.Equal(turns, want) {
		t.Errorf("%v, want %v", turns, want)
	}
	if rows[0] != "a" {
		t.Error("the caller's rows are changed")
	}
}

func TestSelectRows(t *testing.T) {
	all := []string{"hdd-native", "hdd-time", "ssd-native"}
	for pattern, want := range map[string][]string{"hdd-*": {"hdd-native", "hdd-time"}, "*-native": {"hdd-native", "ssd-native"}, "hdd-time": {"hdd-time"}} {
		if got, err := SelectRows(all, []string{pattern}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", pattern, got, err, want)
		}
	}
	if got, err := SelectRows(all, nil); err != nil || !slices.Equal(got, all) {
		t.Errorf("without patterns: %v, %v", got, err)
	}
	for _, wrong := range []string{"tape", "["} {
		if got, err := SelectRows(all, []string{wrong}); err == nil {
			t.Errorf("%s: %v", wrong, got)
		}
	}
}

type oneTurn struct {
	row   string
	run   int
	value float64
}

func (t oneTurn) Key() RowTurn   { return RowTurn{t.row, t.run} }
func (t oneTurn) String() string { return fmt.Sprintf("%g s", t.value) }

func TestTurnTable(t *testing.T) {
	table := TurnTable[int, oneTurn]{Turns: []oneTurn{{"a", 1, 10}, {"b", 2, 4}, {"a", 2, 20}, {"a", 3, -1}, {"b", 3, 2}}}
	positive := func(t oneTurn) (float64, bool) { return t.value, t.value > 0 }
	if got := table.Of("b"); !slices.Equal(got, []oneTurn{{"b", 2, 4}, {"b", 3, 2}}) || table.Of("c") != nil {
		t.Errorf("%v", got)
	}
	if got := table.Values("a", positive); !slices.Equal(got, []float64{10, 20}) {
		t.Errorf("%v", got)
	}
	// A pair has both turns of one run.
	if got := table.Pairs("a", "b", func(a, b oneTurn) (float64, bool) { return a.value / b.value, a.value > 0 }); !slices.Equal(got, []float64{5}) {
		t.Errorf("%v", got)
	}
	var out strings.Builder
	if err := table.WriteTurns(&out, []string{"b", "a"}); err != nil {
		t.Fatal(err)
	}
	if want := "ROW  RUN  RESULT\nb    2    4 s\nb    3    2 s\na    1    10 s\na    2    20 s\na    3    -1 s\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
