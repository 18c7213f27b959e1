package operate

import (
	"bytes"
	"strings"
	"testing"

	"penstock/core/policy"
	"penstock/wire/cluster"
)

// TestWhatAPolicyGives: in an ordered queue, the entitlement is a range, and a guaranteed rate has a note about what fits.
func TestWhatAPolicyGives(t *testing.T) {
	parse := func(text string) *Policy {
		t.Helper()
		p, err := ParsePolicy("file", []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	facts := []policy.Facts{{Flow: "a", Queue: "etl"}, {Flow: "b", Queue: "etl"}, {Flow: "kept"}, {Flow: "queued"}, {Flow: "new"}, {Flow: "more"}, {Flow: "disk"}}
	states := []*cluster.ApplicationState{{Application: "kept", Promise: &cluster.Promise{State: "admitted", Granted: 1, Fits: 1}},
		{Application: "queued", Promise: &cluster.Promise{State: "queued", Fits: 0.25}}, {Application: "new"}, {Application: "more", Promise: &cluster.Promise{State: "admitted", Fits: 1}}}
	const rates = "rules: [{flow: kept, total_reserve: 10MiB}, {flow: queued, total_reserve: 80MiB}, {flow: more, total_reserve: 10MiB}]"
	changes := Compare(parse(rates), parse(strings.Replace(strings.Replace(rates, "more, total_reserve: 10MiB", "more, total_reserve: 11MiB", 1), "]", ", {flow: new, total_reserve: 1MiB}, {flow: disk, reserve: 60%}, {queue: etl, reserve: 20%}]", 1)+
		"\nqueues: [{queue: etl, weight: 1, order: shortest, slices: [90], floor: 1}]"), facts)
	Promised(changes, states)
	want := map[string]string{"a": "not on a disk with all others: 100 % together, and 90 % fit", "disk": "not on a disk with all others: 100 % together, and 90 % fit",
		"kept": "yes", "queued": "25.0 % of it, now queued", "new": "not known before it is applied", "more": "up to 10.0 MiB/s; more is not known"}
	for _, c := range changes {
		if w, there := want[c.Application]; there && c.Fits != w {
			t.Errorf("%s: %q, want %q", c.Application, c.Fits, w)
		}
	}
	if a := changes[0]; a.New.Share() != "1.7 to 15.0 % by rank" || a.Old.Share() != "14.3 %" || !a.Differs() {
		t.Errorf("%q and %q: %+v", a.Old.Share(), a.New.Share(), a.New)
	}
	var out bytes.Buffer
	if err := Changes(&out, changes); err != nil || !strings.Contains(out.String(), "FITS") || !strings.Contains(out.String(), "14.3 % > 1.7 to 15.0 % by rank") {
		t.Errorf("%v:\n%s", err, out.String())
	}
	for fits, want := range map[float64]string{0.5: "50.0 % of it, now reduced", 1: "yes"} {
		if got := totalFits(100, 100, &cluster.Promise{State: "reduced", Fits: fits}); got != want {
			t.Errorf("%v: %q, want %q", fits, got, want)
		}
	}
}
