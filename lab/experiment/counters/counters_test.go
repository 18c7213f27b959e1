package counters

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

func TestGrown(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	samples := Samples{
		{at(0), map[string]Bytes{"b": {0, 10}, "a": {100, 0}}},
		{at(2), map[string]Bytes{"b": {20, 10}, "a": {100, 40}}},
		{at(3), map[string]Bytes{"b": {20, 10}, "a": {130, 40}}},
	}
	for _, c := range []struct {
		name     string
		from, to float64
		want     Bytes
	}{
		{"a", 0, 3, Bytes{30, 40}},
		{"a", 1, 2.5, Bytes{15, 20}},
		{"a", -5, 99, Bytes{30, 40}}, // outside the samples
		{"b", 0.5, 1, Bytes{5, 0}},
		{"c", 0, 3, Bytes{}},
	} {
		if got := samples.Grown(at(c.from), at(c.to), c.name); got != c.want {
			t.Errorf("%s from %v to %v s grew by %v, want %v", c.name, c.from, c.to, got, c.want)
		}
	}
	if got := samples.Total(at(1), at(3)); got != (Bytes{40, 20}) || got.Total() != 60 {
		t.Errorf("all grew by %v", got)
	}
	if got := samples.Names(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("names %v", got)
	}
	if got := Samples(nil).Grown(at(0), at(1), "a"); got != (Bytes{}) {
		t.Errorf("no samples grew by %v", got)
	}
}

func TestEvery(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	if err := Every(ctx, time.Millisecond, func() error {
		if calls++; calls == 3 {
			cancel()
		}
		return nil
	}); err != nil || calls < 4 {
		t.Errorf("%d calls, %v: the last one is after the end", calls, err)
	}
	broken := errors.New("broken")
	if err := Every(t.Context(), time.Hour, func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
