package experiment

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
)

type setup struct {
	Bytes int `json:"bytes"`
}

func TestAnInterruptedMeasurementContinues(t *testing.T) {
	t.Chdir(t.TempDir()) // run folders are made below it
	path := filepath.Join(t.TempDir(), "journal")
	starts, stops := 0, 0
	perform := func(count, failAt int, s setup) ([]int, error) {
		return Rounds[setup, int]{Name: "test", Setup: s, Count: count, Resume: path, Say: t.Logf,
			Start: func(context.Context, string) (func(context.Context, int) (int, error), func() error, error) {
				starts++
				return func(_ context.Context, n int) (int, error) {
					if n == failAt {
						return 0, errors.New("it broke")
					}
					return 10 * n, nil
				}, func() error { stops++; return nil }, nil
			}}.Perform(t.Context())
	}
	if got, err := perform(4, 2, setup{1}); err == nil || !slices.Equal(got, []int{0, 10}) {
		t.Fatalf("%v, %v", got, err)
	}
	if got, err := perform(4, -1, setup{1}); err != nil || !slices.Equal(got, []int{0, 10, 20, 30}) {
		t.Fatalf("%v, %v", got, err)
	}
	if got, err := perform(3, -1, setup{1}); err != nil || len(got) != 4 || starts != 2 || stops != 2 {
		t.Fatalf("%v, %v: with all rounds done no machine starts; %d started, %d stopped", got, err, starts, stops)
	}
	if _, err := perform(5, -1, setup{2}); err == nil {
		t.Error("a journal of another setup was continued")
	}
}
