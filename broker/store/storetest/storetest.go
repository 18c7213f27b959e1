// Package storetest has tests that every store of policy versions must pass. Each store's tests
// call them with a function that opens the store.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/broker/store"
)

// Place opens the store of one test; each call opens the same store.
type Place func(t testing.TB) store.Store

// patience bounds the time until a change is visible.
const patience = 30 * time.Second

// version returns a version that differs from those with other numbers.
func version(number uint64) store.Version {
	return store.Version{Number: number, Text: fmt.Appendf(nil, "default: %d\n", number), Weights: map[string]int{"application_1_1": int(number)},
		Author: "alice", Note: "the " + fmt.Sprint(number) + "th \"<&>\n", Time: time.UnixMilli(1_700_000_000_000 + int64(number)).UTC()}
}

func same(a, b store.Version) bool {
	if len(a.Weights) == 0 && len(b.Weights) == 0 {
		a.Weights, b.Weights = nil, nil
	}
	if len(a.Text) == 0 && len(b.Text) == 0 {
		a.Text, b.Text = nil, nil
	}
	at, bt := a.Time, b.Time
	a.Time, b.Time = time.Time{}, time.Time{}
	return reflect.DeepEqual(a, b) && at.Equal(bt)
}

func appendAll(t testing.TB, s store.Store, from, to uint64) {
	t.Helper()
	for n := from; n <= to; n++ {
		if err := s.Append(t.Context(), version(n)); err != nil {
			t.Fatalf("version %d: %v", n, err)
		}
	}
}

// history returns a store's history as a list.
func history(ctx context.Context, s store.Store, limit int) (all []store.Version, err error) {
	err = s.History(ctx, limit, func(v store.Version) bool {
		all = append(all, v)
		return true
	})
	return all, err
}

func awaitChange(t testing.TB, s store.Store) {
	t.Helper()
	select {
	case <-s.Changes():
	case <-time.After(patience):
		t.Fatalf("no change within %v", patience)
	}
}

func closeStore(t testing.TB, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// Run tests a store that only one broker has open at a time. place makes an empty store for each
// test.
func Run(t *testing.T, place func(t testing.TB) Place) {
	open := func(t *testing.T) store.Store {
		s := place(t)(t)
		t.Cleanup(func() { closeStore(t, s) })
		return s
	}
	t.Run("learned", func(t *testing.T) {
		at := place(t)
		s := at(t)
		if record, err := s.Learned(t.Context()); err != nil || record != nil {
			t.Errorf("an empty store: %q, %v", record, err)
		}
		appendAll(t, s, 1, 2)
		long := make([]byte, store.MaxLearned)
		for _, record := range [][]byte{[]byte("one"), long, []byte("two\n\x00")} {
			if err := s.KeepLearned(t.Context(), record); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Learned(t.Context()); err != nil || !bytes.Equal(got, record) {
				t.Errorf("%d bytes instead of %d, %v", len(got), len(record), err)
			}
		}
		if v, err := s.Latest(t.Context()); err != nil || !same(v, version(2)) {
			t.Errorf("the newest version: %+v, %v", v, err)
		}
		closeStore(t, s)
	})
	t.Run("empty", func(t *testing.T) {
		s := open(t)
		if v, err := s.Latest(t.Context()); err != nil || v.Number != 0 {
			t.Errorf("the newest of an empty store: %v, %v", v, err)
		}
		if _, err := s.Get(t.Context(), 1); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("version 1 of an empty store: %v", err)
		}
		if all, err := history(t.Context(), s, 10); err != nil || len(all) != 0 {
			t.Errorf("the history of an empty store: %v, %v", all, err)
		}
	})
	t.Run("versions", func(t *testing.T) {
		s := open(t)
		appendAll(t, s, 1, 7)
		awaitChange(t, s)
		if v, err := s.Latest(t.Context()); err != nil || !same(v, version(7)) {
			t.Errorf("the newest: %+v, %v", v, err)
		}
		for n := uint64(1); n <= 7; n++ {
			if v, err := s.Get(t.Context(), n); err != nil || !same(v, version(n)) {
				t.Errorf("version %d: %+v, %v", n, v, err)
			}
		}
		for _, n := range []uint64{0, 8} {
			if _, err := s.Get(t.Context(), n); !errors.Is(err, store.ErrUnknown) {
				t.Errorf("version %d: %v", n, err)
			}
		}
		for limit, want := range map[int]int{0: 0, 1: 1, 3: 3, 7: 7, 1000: 7} {
			all, err := history(t.Context(), s, limit)
			if err != nil || len(all) != want {
				t.Fatalf("a history of %d: %d versions, %v", limit, len(all), err)
			}
			for i, v := range all {
				if !same(v, version(uint64(7-i))) {
					t.Errorf("a history of %d: %+v at %d", limit, v, i)
				}
			}
		}
	})
	t.Run("history", func(t *testing.T) {
		// History ends when each returns false, and versions may be appended meanwhile.
		s := open(t)
		appendAll(t, s, 1, 4)
		var seen []uint64
		if err := s.History(t.Context(), 10, func(v store.Version) bool {
			seen = append(seen, v.Number)
			appendAll(t, s, 4+uint64(len(seen)), 4+uint64(len(seen)))
			return v.Number > 3
		}); err != nil || !reflect.DeepEqual(seen, []uint64{4, 3}) {
			t.Errorf("%v, %v", seen, err)
		}
	})
	t.Run("conflict", func(t *testing.T) {
		s := open(t)
		appendAll(t, s, 1, 2)
		for _, n := range []uint64{1, 2, 4} {
			if err := s.Append(t.Context(), version(n)); !errors.Is(err, store.ErrConflict) {
				t.Errorf("version %d after 2: %v", n, err)
			}
		}
		if v, err := s.Latest(t.Context()); err != nil || !same(v, version(2)) {
			t.Errorf("the newest: %+v, %v", v, err)
		}
		appendAll(t, s, 3, 3)
	})
	t.Run("bounds", func(t *testing.T) {
		s := open(t)
		for name, spoil := range map[string]func(*store.Version){
			"number":       func(v *store.Version) { v.Number = 0 },
			"text":         func(v *store.Version) { v.Text = make([]byte, store.MaxText+1) },
			"not UTF-8":    func(v *store.Version) { v.Text = []byte{0xff} },
			"weight":       func(v *store.Version) { v.Weights["a"] = store.MaxWeight + 1 },
			"no weight":    func(v *store.Version) { v.Weights["a"] = 0 },
			"a name":       func(v *store.Version) { v.Weights[strings.Repeat("a", store.MaxName+1)] = 1 },
			"no name":      func(v *store.Version) { v.Weights[""] = 1 },
			"author":       func(v *store.Version) { v.Author = strings.Repeat("a", store.MaxName+1) },
			"note":         func(v *store.Version) { v.Note = strings.Repeat("a", store.MaxNote+1) },
			"many weights": func(v *store.Version) { v.Weights = weights(store.MaxWeights + 1) },
		} {
			v := version(1)
			if spoil(&v); s.Append(t.Context(), v) == nil {
				t.Errorf("%s: taken", name)
			}
		}
		most := store.Version{Number: 1, Text: []byte(strings.Repeat("#\n", store.MaxText/2)), Author: strings.Repeat("a", store.MaxName),
			Note: strings.Repeat("\n", store.MaxNote), Weights: weights(store.MaxWeights), Time: time.UnixMilli(1).UTC()}
		if err := s.Append(t.Context(), most); err != nil {
			t.Fatalf("the largest: %v", err)
		}
		if v, err := s.Get(t.Context(), 1); err != nil || !same(v, most) {
			t.Errorf("the largest version has changed: %v", err)
		}
	})
	t.Run("copies", func(t *testing.T) {
		s := open(t)
		v := version(1)
		if err := s.Append(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		v.Text[0], v.Weights["b"] = 'x', 2
		got, err := s.Latest(t.Context())
		if err != nil || !same(got, version(1)) {
			t.Fatalf("the store has changed with the caller's version: %+v, %v", got, err)
		}
		got.Text[0], got.Weights["b"] = 'x', 2
		if again, err := s.Latest(t.Context()); err != nil || !same(again, version(1)) {
			t.Errorf("the store has changed with a returned version: %+v, %v", again, err)
		}
	})
	t.Run("at once", func(t *testing.T) {
		// Exactly one of several writers of the same number succeeds.
		s := open(t)
		const writers, each = 8, 10
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for written := 0; written < each; {
					v, err := s.Latest(t.Context())
					if err == nil {
						if err = s.Append(t.Context(), version(v.Number+1)); err == nil {
							written++
						}
					}
					if err != nil && !errors.Is(err, store.ErrConflict) {
						t.Errorf("%v", err)
						return
					}
				}
			})
		}
		all.Wait()
		if v, err := s.Latest(t.Context()); err != nil || !same(v, version(writers*each)) {
			t.Errorf("the newest: %+v, %v", v, err)
		}
	})
	t.Run("kept", func(t *testing.T) {
		s := open(t)
		appendAll(t, s, 1, store.Keep+5)
		if _, err := s.Get(t.Context(), 5); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("version 5: %v", err)
		}
		if v, err := s.Get(t.Context(), 6); err != nil || !same(v, version(6)) {
			t.Errorf("version 6: %+v, %v", v, err)
		}
		if all, err := history(t.Context(), s, store.Keep+5); err != nil || len(all) != store.Keep {
			t.Errorf("%d versions are kept, %v", len(all), err)
		}
	})
}

func weights(count int) map[string]int {
	w := map[string]int{}
	for i := range count {
		w[fmt.Sprintf("application_1700000000000_%d", i)] = i + 1
	}
	return w
}

// Lasting compares a store that outlives the broker with a list as a model.
func Lasting(t *testing.T, place func(t testing.TB) Place) {
	rapid.Check(t, func(r *rapid.T) {
		open := place(t)
		s := open(t)
		defer func() { closeStore(t, s) }()
		var model []store.Version
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for range rapid.IntRange(1, 20).Draw(r, "steps") {
			if rapid.Bool().Draw(r, "open again") {
				closeStore(t, s)
				s = open(t)
			} else {
				v := store.Version{Number: rapid.Uint64Range(uint64(len(model)), uint64(len(model)+2)).Draw(r, "number"),
					Text:    []byte(rapid.String().Draw(r, "text")),
					Weights: rapid.MapOfN(rapid.StringMatching("[a-z_0-9]{1,20}"), rapid.IntRange(1, store.MaxWeight), 0, 5).Draw(r, "weights"),
					Author:  rapid.StringN(0, 20, 80).Draw(r, "author"), Note: rapid.StringN(0, 20, 80).Draw(r, "note"),
					Time: time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(r, "time")).UTC()}
				err := s.Append(ctx, v)
				switch next := v.Number == uint64(len(model)+1); {
				case next && err == nil:
					model = append(model, v)
				case next || err == nil:
					r.Fatalf("version %d after %d: %v", v.Number, len(model), err)
				}
			}
			all, err := history(ctx, s, len(model)+1)
			if err != nil || len(all) != len(model) {
				r.Fatalf("%d versions of %d: %v", len(all), len(model), err)
			}
			for i, v := range all {
				if !same(v, model[len(model)-1-i]) {
					r.Fatalf("%+v, want %+v", v, model[len(model)-1-i])
				}
			}
		}
	})
}

// Shared tests a store that several brokers have open at once.
func Shared(t *testing.T, place func(t testing.TB) Place) {
	open := place(t)
	one, other := open(t), open(t)
	defer closeStore(t, one)
	defer closeStore(t, other)
	appendAll(t, one, 1, 3)
	for deadline := time.Now().Add(patience); ; {
		awaitChange(t, other)
		v, err := other.Latest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if same(v, version(3)) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the other one has version %d", v.Number)
		}
	}
	if v, err := other.Get(t.Context(), 2); err != nil || !same(v, version(2)) {
		t.Errorf("version 2: %+v, %v", v, err)
	}
	if err := one.Append(t.Context(), version(3)); !errors.Is(err, store.ErrConflict) {
		t.Errorf("version 3 again: %v", err)
	}
}
