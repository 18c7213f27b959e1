package coord_test

import (
	"errors"
	"fmt"
	"testing"

	"penstock/core/coord"

	"pgregory.net/rapid"
)

// TestTotalsAddUp compares a Totals with sums over the last reports of its members.
func TestTotalsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const maxMembers, maxApps, maxEntries = 4, 5, 3
		totals := coord.NewTotals(maxMembers, maxApps, maxEntries)
		type said struct {
			name string
			last coord.Service
		}
		model := map[coord.Member][]said{}
		named := func() map[string]bool {
			names := map[string]bool{}
			for _, entries := range model {
				for _, e := range entries {
					if e.name != "" {
						names[e.name] = true
					}
				}
			}
			return names
		}
		anyone := func(t *rapid.T) coord.Member { return coord.Member(rapid.IntRange(-1, maxMembers).Draw(t, "member")) }
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				m, err := totals.Join()
				if full := len(model) == maxMembers; full != errors.Is(err, coord.ErrTooManyMembers) {
					t.Fatalf("joining %d members: %v", len(model), err)
				}
				if err == nil {
					if _, there := model[m]; there {
						t.Fatalf("Join returned member %d twice", m)
					}
					model[m] = nil
				}
			},
			"leave": func(t *rapid.T) {
				m := anyone(t)
				_, there := model[m]
				if err := totals.Leave(m); there != (err == nil) {
					t.Fatalf("leave %d: %v", m, err)
				}
				delete(model, m)
			},
			"name": func(t *rapid.T) {
				m, i := anyone(t), rapid.IntRange(-1, maxEntries).Draw(t, "entry")
				name := rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e", "f"}).Draw(t, "name")
				entries, there := model[m]
				names := named()
				_, err := totals.Name(m, i, name)
				want := error(nil)
				switch {
				case !there:
					want = coord.ErrUnknown
				case i < 0 || i >= maxEntries:
					want = coord.ErrTooManyEntries
				case name != "" && !names[name] && len(names) == maxApps:
					want = coord.ErrTooManyApps
				}
				if !errors.Is(err, want) {
					t.Fatalf("name %d of %d %q: %v, want %v", i, m, name, err, want)
				}
				if want == nil {
					for i >= len(entries) {
						entries = append(entries, said{})
					}
					if entries[i].name != name {
						entries[i] = said{name: name}
					}
					model[m] = entries
				}
			},
			"report": func(t *rapid.T) {
				m, i := anyone(t), rapid.IntRange(-1, maxEntries).Draw(t, "entry")
				rate := rapid.OneOf(rapid.Int64Range(-1, 3*coord.Second), rapid.Int64Range(coord.MaxRate-3*coord.Second, coord.MaxRate+1))
				s := coord.Service{Rate: rate.Draw(t, "rate"), Room: rate.Draw(t, "room")}
				entries := model[m]
				err := totals.Report(m, i, s)
				if i < 0 || i >= len(entries) || entries[i].name == "" {
					if !errors.Is(err, coord.ErrUnknown) {
						t.Fatalf("report %d of %d: %v", i, m, err)
					}
					return
				}
				sum := s.Rate
				for j, e := range entries {
					if j != i {
						sum += e.last.Rate
					}
				}
				if bad := s.Rate < 0 || s.Room < 0 || s.Room > coord.MaxRate || sum > coord.MaxRate; bad != errors.Is(err, coord.ErrRate) {
					t.Fatalf("report %v beside %v: %v", s, entries, err)
				}
				if err == nil {
					entries[i].last = s
				}
			},
			"": func(t *rapid.T) {
				want := map[string]string{}
				sums, members := map[string]coord.Service{}, map[string]int{}
				for _, entries := range model {
					for _, e := range entries {
						if e.name != "" {
							sum := sums[e.name]
							sums[e.name] = coord.Service{Rate: sum.Rate + e.last.Rate, Room: sum.Room + e.last.Room}
							members[e.name]++
						}
					}
				}
				for name := range sums {
					want[name] = fmt.Sprint(members[name], sums[name])
				}
				got := map[string]string{}
				totals.Each(func(_ coord.App, name string, members int, total coord.Service) {
					got[name] = fmt.Sprint(members, total)
					if of, ok := totals.Of(name); !ok || of != total {
						t.Fatalf("%s is %v, and %v", name, total, of)
					}
				})
				if fmt.Sprint(got) != fmt.Sprint(want) || totals.Apps() != len(want) || totals.Members() != len(model) {
					t.Fatalf("%v, want %v", got, want)
				}
			},
		})
	})
}

// TestQueueTotals checks that a member may report the same service in several nested queues, and at
// most its devices' service in each of them.
func TestQueueTotals(t *testing.T) {
	q := coord.NewQueueTotals(2, 5, 5, 3)
	m, err := q.Join()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if _, err := q.Name(m, i, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	most := coord.Service{Rate: coord.MaxRate, Room: coord.MaxRate, Had: coord.MaxNeed, Weight: coord.MaxNeed}
	for i := range 3 {
		if err := q.Report(m, i, most); err != nil {
			t.Errorf("level %d: %v", i+1, err)
		}
	}
	for name, bad := range map[string]coord.Service{
		"one level too many": {Rate: 1}, "negative room": {Room: -1}, "too much room": {Room: coord.MaxRate + 1},
		"a negative part": {Had: -1}, "a weight below 0": {Weight: -1}, "too large a part": {Had: coord.MaxNeed + 1}, "too large a weight": {Weight: coord.MaxNeed + 1},
	} {
		if err := q.Report(m, 3, bad); !errors.Is(err, coord.ErrRate) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := q.Report(m, 0, coord.Service{Rate: coord.MaxRate + 1}); !errors.Is(err, coord.ErrRate) {
		t.Errorf("a rate above that of all devices: %v", err)
	}
	if got, ok := q.Of("0"); !ok || got != most {
		t.Errorf("%+v, %v", got, ok)
	}
	if err := q.Leave(m); err != nil || q.Apps() != 0 {
		t.Errorf("%d queues are left, %v", q.Apps(), err)
	}
}
