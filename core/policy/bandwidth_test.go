package policy

import (
	"errors"
	"strings"
	"testing"

	"penstock/core/limit"
	"penstock/core/reserve"
)

func TestBandwidthIsTheWeight(t *testing.T) {
	p := &Policy{Default: 1, Rules: []Rule{{Queue: "root.*", Weight: 3, Bandwidth: BandwidthWeight, Limit: 9 << 20}, {Weight: 2}}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	for held, want := range map[int64]int{0: 3, 1: 1, 60: 60, MaxWeight: MaxWeight, MaxWeight + 1: MaxWeight, 1 << 62: MaxWeight, -1: 3} {
		if g := p.Grant(Facts{Queue: "root.etl", Bandwidth: held}); g != (Grant{Weight: want, Limit: 9 << 20}) {
			t.Errorf("%d MB/s: %+v, want a weight of %d", held, g, want)
		}
	}
	if g := p.Grant(Facts{Bandwidth: 60}); g.Weight != 2 {
		t.Errorf("with a rule without bandwidth: %+v", g)
	}
	// A tag has no effect if the allocated bandwidth decides.
	if g := p.Grant(Facts{Queue: "root.etl", Bandwidth: 60, Tags: []string{"io.weight=9"}}); g.Weight != 60 || g.Tagged {
		t.Errorf("with a tag: %+v", g)
	}
	p.Rules[0].MaxWeight = 8
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "rules[0]: bandwidth and max_weight") {
		t.Error(err)
	}
}

func TestBandwidthIsTheGuaranteedRate(t *testing.T) {
	p := &Policy{Default: 1, Rules: []Rule{
		{Queue: "root.*", Weight: 3, Bandwidth: BandwidthReserve, Total: Total{Limit: 100_000_000}},
		{Weight: 2, Bandwidth: BandwidthReserve},
	}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	for held, want := range map[int64]int64{-1: 0, 0: 0, 1: MinTotal, 2: 2_000_000, 100: 100_000_000, 101: 100_000_000, 1 << 62: 100_000_000} {
		if g := p.Grant(Facts{Queue: "root.etl", Bandwidth: held}); g.Weight != 3 || g.Total != (Total{Reserve: want, Limit: 100_000_000}) {
			t.Errorf("%d MB/s: %+v, want a guaranteed rate of %d", held, g, want)
		}
	}
	if g := p.Grant(Facts{Bandwidth: 1 << 62}); g.Total.Reserve > limit.MaxRate || g.Total.Reserve < limit.MaxRate-megabyte {
		t.Errorf("%+v", g)
	}
	for field, wrong := range map[string]Rule{
		"total_reserve": {Weight: 1, Bandwidth: BandwidthReserve, Total: Total{Reserve: MinTotal}},
		"reserve":       {Weight: 1, Bandwidth: BandwidthReserve, Reserve: reserve.Rate{Part: 0.1}},
	} {
		var e *Error
		if err := (&Policy{Default: 1, Rules: []Rule{wrong}}).Validate(); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}
