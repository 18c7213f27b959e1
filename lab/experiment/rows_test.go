package experiment

import (
	"slices"
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
