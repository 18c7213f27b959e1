package cost_test

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"penstock/core/cost"
	"penstock/core/sfq"

	"pgregory.net/rapid"
)

// hdd is the model of a disk of 12 MB/s with seeks of about 8 ms.
var hdd = cost.Model{Read: hddLines, Write: hddLines}

var hddLines = cost.Coefficients{
	Random:     cost.Line{Fixed: 8 * time.Millisecond, PerMiB: 87 * time.Millisecond},
	Sequential: cost.Line{PerMiB: 87 * time.Millisecond},
}

func TestLine(t *testing.T) {
	l := cost.Line{Fixed: 8 * time.Millisecond, PerMiB: 87 * time.Millisecond}
	for bytes, want := range map[int64]time.Duration{
		-1: 8 * time.Millisecond, 0: 8 * time.Millisecond,
		1 << 20: 95 * time.Millisecond, 2 << 20: 182 * time.Millisecond,
		1: 8*time.Millisecond + 82, math.MaxInt64: cost.Max,
	} {
		if got := l.Of(bytes); got != want {
			t.Errorf("%d bytes cost %v, want %v", bytes, got, want)
		}
	}
	if got := (cost.Line{Fixed: -1, PerMiB: -1}).Of(1 << 20); got != 0 {
		t.Errorf("negative parts cost %v", got)
	}
	if cost.Max > sfq.MaxCost {
		t.Errorf("a cost of %v is above the scheduler's maximum", cost.Max)
	}
}

// TestLineIsExact compares Line.Of with the rule in unbounded arithmetic.
func TestLineIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := cost.Line{
			Fixed:  time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "fixed")),
			PerMiB: time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "per MiB")),
		}
		bytes := rapid.Int64Range(0, math.MaxInt64).Draw(t, "bytes")
		want := new(big.Int).Mul(big.NewInt(int64(l.PerMiB)), big.NewInt(bytes))
		want.Rsh(want, 20)
		want.Add(want, big.NewInt(int64(l.Fixed)))
		if most := big.NewInt(int64(cost.Max)); want.Cmp(most) > 0 {
			want = most
		}
		if got := l.Of(bytes); int64(got) != want.Int64() {
			t.Fatalf("%v of %d bytes is %d, want %v", l, bytes, got, want)
		}
	})
}

func TestModelTellsRequestsApart(t *testing.T) {
	line := func(ms time.Duration) cost.Line {
		return cost.Line{Fixed: ms * time.Millisecond, PerMiB: time.Millisecond}
	}
	m := cost.Model{Read: cost.Coefficients{Random: line(2), Sequential: line(1)}, Write: cost.Coefficients{Random: line(4), Sequential: line(3)}}
	for _, c := range []struct {
		write, sequential bool
		want              time.Duration
	}{{false, true, 1}, {false, false, 2}, {true, true, 3}, {true, false, 4}} {
		if got := m.Of(c.write, c.sequential, 0); got != c.want*time.Millisecond {
			t.Errorf("write %v, sequential %v: %v", c.write, c.sequential, got)
		}
	}
	if err := m.Validate(); err != nil {
		t.Error(err)
	}
}

func TestBoundsOfAModel(t *testing.T) {
	edge := cost.Coefficients{
		Random:     cost.Line{Fixed: cost.FixedMax, PerMiB: cost.PerMiBMax},
		Sequential: cost.Line{Fixed: 0, PerMiB: cost.PerMiBMin},
	}
	if err := (cost.Model{Read: edge, Write: edge}).Validate(); err != nil {
		t.Errorf("the bounds are refused: %v", err)
	}
	for want, change := range map[string]func(*cost.Coefficients){
		"0 to 1s":     func(c *cost.Coefficients) { c.Random.Fixed++ },
		"faster than": func(c *cost.Coefficients) { c.Sequential.PerMiB-- },
		"slower than": func(c *cost.Coefficients) { c.Random.PerMiB++ },
		"alone":       func(c *cost.Coefficients) { c.Alone = cost.Line{Fixed: cost.FixedMax + 1, PerMiB: time.Second} },
		"use 0 to":    func(c *cost.Coefficients) { c.Sequential.Fixed = -1 },
		"cheaper":     func(c *cost.Coefficients) { c.Random.PerMiB, c.Sequential.PerMiB = cost.PerMiBMin, cost.PerMiBMax },
	} {
		bad := edge
		change(&bad)
		if err := (cost.Model{Read: edge, Write: bad}).Validate(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "writes") {
			t.Errorf("%+v: %v, want an error with %q", bad, err, want)
		}
		if err := (cost.Model{Read: bad, Write: edge}).Validate(); err == nil || !strings.Contains(err.Error(), "reads") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
