package experiment

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
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

// turn is a key with its own name, like a phase.
type turn string

func TestTurnsAreDoneOnceInOrder(t *testing.T) {
	t.Chdir(t.TempDir())
	path := filepath.Join(t.TempDir(), "journal")
	broken := errors.New("it broke")
	perform := func(failAt turn) (did []turn, after []int, results []turn, err error) {
		results, err = Turns[setup, turn, turn]{Name: "test", Unit: "runs", Resume: path, Say: t.Logf,
			Missing: func(done []turn) (missing []turn) {
				for _, k := range []turn{"a 1", "b 1", "a 2"} {
					if !slices.Contains(done, k) {
						missing = append(missing, k)
					}
				}
				return missing
			},
			Start: func(context.Context, string) (func(context.Context, turn, []turn) (turn, error), func() error, error) {
				return func(_ context.Context, k turn, done []turn) (turn, error) {
					if k == failAt {
						return "", broken
					}
					if did = append(did, k); len(done)+1 < len(did) {
						t.Errorf("%s is done after %v", k, done)
					}
					return k, nil
				}, func() error { return nil }, nil
			},
			After: func(done []turn) error { after = append(after, len(done)); return nil },
		}.Perform(t.Context())
		return did, after, results, err
	}
	did, after, results, err := perform("b 1")
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "b 1: ") || !slices.Equal(did, []turn{"a 1"}) || !slices.Equal(after, []int{1}) || len(results) != 1 {
		t.Fatalf("did %v, after %v, results %v, %v", did, after, results, err)
	}
	did, after, results, err = perform("")
	if err != nil || !slices.Equal(did, []turn{"b 1", "a 2"}) || !slices.Equal(after, []int{2, 3}) || len(results) != 3 {
		t.Fatalf("did %v, after %v, results %v, %v", did, after, results, err)
	}
	if did, _, results, err = perform(""); err != nil || len(did) != 0 || len(results) != 3 {
		t.Fatalf("again: did %v, results %v, %v", did, results, err)
	}
}
