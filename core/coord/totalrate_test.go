package coord_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/core/reserve"
)

// TestTotalRatesAreNeverPassed draws divisions, answers, what is reported, and nodes that come and go. The parts of the limit that
// the nodes have must add up to at most 1.02 times the limit, and those of the reserve to at most 1.5 times the reserve. Each division must divide at least 0.98 of the
// limit, and at most 1.1 times the reserve. What is made up for, and what nodes get before the next
// division, must fit beside the rate of another application, which must have the same parts as without.
func TestTotalRatesAreNeverPassed(t *testing.T) {
	const limit, guaranteed, nodes = 1000 << 20, 600 << 20, 6
	rapid.Check(t, func(t *rapid.T) {
		rate, other := &coord.TotalRate{}, &coord.TotalRate{Since: 1}
		rate.Set(policy.Total{Reserve: guaranteed, Limit: limit}, 0)
		other.Set(policy.Total{Reserve: rapid.Int64Range(1, guaranteed).Draw(t, "other")}, 1)
		parts, others := make([]*coord.RatePart, nodes), make([]*coord.RatePart, nodes)
		free, room, more := make([]int64, nodes), make([]int64, nodes), make([]int64, nodes) // more: what the answers have used of free
		for i := range room {
			room[i] = rapid.SampledFrom([]int64{100 << 20, 200 << 20, 600 << 20, coord.UnknownRoom}).Draw(t, "room")
		}
		last := make([]coord.Service, nodes)
		sent := func() (sum policy.Total) {
			for _, p := range parts {
				if p != nil {
					sum.Limit, sum.Reserve = sum.Limit+p.Sent().Limit, sum.Reserve+p.Sent().Reserve
				}
			}
			return sum
		}
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := rapid.IntRange(0, nodes-1).Draw(t, "node")
			switch rapid.SampledFrom([]string{"answer", "answer", "answer", "leave", "divide", "divide"}).Draw(t, "step") {
			case "answer":
				if parts[n] == nil {
					parts[n], others[n] = &coord.RatePart{}, &coord.RatePart{}
					rate.Join(parts[n])
					other.Join(others[n])
				}
				last[n] = coord.Service{Bytes: rapid.SampledFrom([]int64{0, limit / 10, limit, 2 * limit}).Draw(t, "bytes"), Hungry: rapid.Int64Range(0, 1).Draw(t, "hungry")}
				due, left := parts[n].Due(), free[n]
				total := rate.Take(parts[n], last[n], &free[n])
				if total.Limit < 1 || total != parts[n].Sent() {
					t.Fatalf("the answer has %+v, the part is %+v", total, parts[n].Sent())
				}
				more[n] += left - free[n]
				if total.Reserve-due.Reserve > more[n] && free[n] != coord.UnknownRoom || more[n] < 0 || free[n] < 0 {
					t.Fatalf("the node gets %d, %d are due, and of the room of %d %d are left; this and earlier answers have used %d", total.Reserve, due.Reserve, left, free[n], more[n])
				}
				other.Take(others[n], coord.Service{Bytes: limit, Hungry: 1}, &free[n])
			case "leave":
				parts[n], others[n], more[n] = nil, nil, 0
			case "divide":
				now += 500 * time.Millisecond
				sum := coord.Service{}
				rate.Clear()
				other.Clear()
				there := 0
				for i, p := range parts {
					if p != nil {
						there++
						rate.Place(p, i, last[i])
						other.Place(others[i], i, coord.Service{Bytes: limit, Hungry: 1})
						sum.Bytes, sum.Hungry = sum.Bytes+last[i].Bytes, sum.Hungry+last[i].Hungry
					}
				}
				rate.Note(now, sum.Bytes, sum.Hungry > 0)
				other.Note(now, guaranteed, true)
				rate.DivideLimit()
				free = coord.DivideReserves([]*coord.TotalRate{rate, other}, room)
				clear(more)
				dues := policy.Total{}
				for i, p := range parts {
					if p == nil {
						continue
					}
					dues.Limit, dues.Reserve = dues.Limit+p.Due().Limit, dues.Reserve+p.Due().Reserve
					// Admitted rates are kept up to 0.95 / 0.9 of the room.
					if all := p.Due().Reserve + others[i].Due().Reserve; room[i] != coord.UnknownRoom && (all > room[i]*96/90 || all < room[i] && free[i] != room[i]-all) {
						t.Fatalf("node %d has %d of the room of %d, and %d are left", i, all, room[i], free[i])
					}
				}
				if there > 0 && (dues.Limit < limit*98/100-nodes || dues.Limit > limit*102/100) || dues.Reserve > guaranteed*110/100 ||
					there > 0 && rate.Verdict.State == reserve.Admitted && dues.Reserve < guaranteed {
					t.Fatalf("%+v: the parts add up to %+v", rate.Verdict, dues)
				}
			}
			if sum := sent(); sum.Limit > limit*102/100+nodes || sum.Reserve > guaranteed*150/100 {
				t.Fatalf("the nodes have %+v", sum)
			}
		}
	})
}

// TestMakingUpHurtsNobody draws rates, rooms and demands. What an application makes up for changes no verdict and no part of any rate,
// goes only where the application can use it, and fits beside all rates.
func TestMakingUpHurtsNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.SliceOfN(rapid.Int64Range(0, 1000), 1, 5).Draw(t, "room")
		var rates, plain []coord.PlacedRate
		for i := range rapid.IntRange(1, 5).Draw(t, "rates") {
			r := coord.PlacedRate{Rate: rapid.Int64Range(1, 2000).Draw(t, "rate"), Order: rapid.IntRange(0, 3).Draw(t, "order"), Since: time.Duration(i),
				State: rapid.SampledFrom([]reserve.State{reserve.Unused, reserve.Admitted, reserve.Queued, reserve.Reduced}).Draw(t, "state")}
			for m := range room {
				if rapid.Bool().Draw(t, "there") {
					r.Members = append(r.Members, m)
					r.Demands = append(r.Demands, coord.Demand{Rate: rapid.Int64Range(0, 2000).Draw(t, "moved"), Hungry: rapid.Bool().Draw(t, "hungry")})
				}
			}
			plain = append(plain, r)
			r.MakeUp = rapid.Int64Range(0, 1000).Draw(t, "make up")
			rates = append(rates, r)
		}
		want, got := coord.AdmitRates(plain, room), coord.AdmitRates(rates, room)
		taken, more := make([]int64, len(room)), make([]int64, len(room))
		for i := range got {
			if got[i].Verdict != want[i].Verdict || !slices.Equal(got[i].Parts, want[i].Parts) {
				t.Fatalf("rate %d: %+v instead of %+v", i, got[i], want[i])
			}
			sum := int64(0)
			for k, m := range rates[i].Members {
				taken[m] += got[i].Parts[k]
				if got[i].MadeUp == nil {
					continue
				}
				if more[m] += got[i].MadeUp[k]; got[i].MadeUp[k] > 0 && !rates[i].Demands[k].Hungry {
					t.Fatalf("rate %d makes up for %d at a node where it cannot use it", i, got[i].MadeUp[k])
				}
				sum += got[i].MadeUp[k]
			}
			if sum > rates[i].MakeUp {
				t.Fatalf("rate %d makes up for %d, not %d", i, sum, rates[i].MakeUp)
			}
		}
		for m := range room {
			if more[m] > max(0, room[m]-taken[m]) {
				t.Fatalf("node %d has %d of %d beside rates of %d", m, more[m], room[m], taken[m])
			}
		}
	})
}

// TestArrears: an application gets back what it lacks until it lacks nothing, and both accounts are bounded.
func TestArrears(t *testing.T) {
	const rate = 1000
	a := &coord.Arrears{Most: 3 * time.Second, Advance: time.Second, Forgotten: 0.05}
	now := time.Duration(0)
	note := func(seconds int, had int64, hungry bool) {
		for range seconds * 2 {
			now += 500 * time.Millisecond
			a.Note(now, rate, had, hungry)
		}
	}
	note(10, rate/2, false)
	if a.Behind() {
		t.Error("an application that wants less lacks something")
	}
	note(100, rate*9/10, true) // it lacks 3 s of the rate at most
	if !a.Behind() {
		t.Error("an application that has less than its rate lacks nothing")
	}
	note(29, rate*11/10, true)
	if !a.Behind() || a.Exhausted(rate) {
		t.Error("2.9 s of the rate have been made up for, and 3 s were lacking")
	}
	note(2, rate*11/10, true)
	if a.Behind() || a.Exhausted(rate) {
		t.Error("all has been made up for, and a tenth of a second is in advance")
	}
	note(19, rate*11/10, true)
	if !a.Exhausted(rate) {
		t.Error("a second is in advance, of which a twentieth per second was forgotten")
	}
	note(1, rate, true)
	if a.Exhausted(rate) {
		t.Error("what was had in advance is not forgotten")
	}
	now += time.Hour
	if a.Note(now, rate, 0, true); a.Behind() {
		t.Error("a time of which nothing is known counts")
	}

	a = &coord.Arrears{Most: time.Second, Advance: 2 * time.Second, Signed: true}
	note(4, rate*2, true) // 2 s of the rate are ahead at most
	note(1, 0, true)
	if a.Behind() || !a.Ahead() {
		t.Error("a second of what was had in advance is not paid back yet")
	}
	note(2, rate/2, true)
	if a.Behind() || a.Ahead() {
		t.Error("all has been paid back")
	}
	note(1, rate/2, true)
	if !a.Behind() || a.Ahead() {
		t.Error("half a second lacks")
	}
}

// TestLife: an application holds its room while its cluster manager says that it runs, or while it is used and for 10 s. When it
// comes back, others that have come meanwhile are before it.
func TestLife(t *testing.T) {
	for name, test := range map[string]struct {
		life coord.Life
		last coord.Service // after a first use
		idle time.Duration
		want reserve.State
	}{
		"runs, idle":             {coord.LifeRuns, coord.Service{}, time.Hour, reserve.Admitted},
		"ended, used":            {coord.LifeEnded, coord.Service{Bytes: 1, Hungry: 1}, 0, reserve.Unused},
		"unknown, used":          {coord.LifeUnknown, coord.Service{Bytes: 1}, time.Hour, reserve.Admitted},
		"unknown, waits":         {coord.LifeUnknown, coord.Service{Hungry: 1}, time.Hour, reserve.Admitted},
		"unknown, open streams":  {coord.LifeUnknown, coord.Service{Streams: 1}, time.Hour, reserve.Admitted},
		"unknown, idle for 10 s": {coord.LifeUnknown, coord.Service{}, 10 * time.Second, reserve.Admitted},
		"unknown, idle for more": {coord.LifeUnknown, coord.Service{}, 10*time.Second + 1, reserve.Unused},
	} {
		rate, other := &coord.TotalRate{}, &coord.TotalRate{Since: 1}
		at, beside := &coord.RatePart{}, &coord.RatePart{}
		divide := func(now time.Duration, life coord.Life, last coord.Service) {
			for _, r := range []struct {
				t    *coord.TotalRate
				at   *coord.RatePart
				life coord.Life
				last coord.Service
			}{{rate, at, life, last}, {other, beside, coord.LifeRuns, coord.Service{}}} {
				r.t.Set(policy.Total{Reserve: 60}, 0)
				r.t.Live(now, r.life, r.last)
				r.t.Clear()
				r.t.Place(r.at, 0, r.last)
			}
			coord.DivideReserves([]*coord.TotalRate{rate, other}, []int64{100})
		}
		divide(time.Second, test.life&^coord.LifeEnded, coord.Service{Bytes: 1})
		if rate.Verdict.State != reserve.Admitted || other.Verdict.State != reserve.Queued {
			t.Errorf("%s: at first %v, the other %v", name, rate.Verdict, other.Verdict)
		}
		divide(time.Second+test.idle, test.life, test.last)
		if rate.Verdict.State != test.want || (other.Verdict.State == reserve.Admitted) != (test.want == reserve.Unused) {
			t.Errorf("%s: %v, the other %v", name, rate.Verdict, other.Verdict)
		}
		divide(2*time.Hour, coord.LifeRuns, coord.Service{Bytes: 1})
		if test.want == reserve.Unused && (rate.Verdict.State != reserve.Queued || other.Verdict.State != reserve.Admitted) {
			t.Errorf("%s: when it came back %v, the other %v", name, rate.Verdict, other.Verdict)
		}
	}
}

// TestATaskThatMoves: a node to which all tasks move has the whole guaranteed rate after three reports, and what was lacking is made up
// for within 15 more. The node where the tasks were keeps a fiftieth of an even share at most, and what a division that stays may
// differ by.
func TestATaskThatMoves(t *testing.T) {
	const guaranteed = 100 << 20
	rate, from, to := &coord.TotalRate{}, &coord.RatePart{}, &coord.RatePart{}
	rate.Set(policy.Total{Reserve: guaranteed}, 0)
	var old, new coord.RateMeter
	inForce, free := [2]int64{}, []int64{0, 0}
	now, moved := time.Duration(0), int64(0)
	period := func(there bool) {
		services := [2]coord.Service{}
		for i, m := range []*coord.RateMeter{&old, &new} {
			if wants := (i == 1) == there; wants { // it moves its part and wants more
				m.Note(inForce[i], time.Second, 0, time.Second)
				moved += inForce[i]
			} else {
				m.Note(0, 0, 0, time.Second)
			}
			m.AddTo(&services[i])
		}
		for i, p := range []*coord.RatePart{from, to} { // both report, and are answered at once
			inForce[i] = rate.Take(p, services[i], &free[i]).Reserve
		}
		for range 2 {
			now += 500 * time.Millisecond
			rate.Note(now, services[0].Bytes+services[1].Bytes, true)
			rate.Clear()
			rate.Place(from, 0, services[0])
			rate.Place(to, 1, services[1])
			free = coord.DivideReserves([]*coord.TotalRate{rate}, []int64{coord.UnknownRoom, coord.UnknownRoom})
		}
	}
	for range 60 {
		period(false)
	}
	if inForce[0] < guaranteed*96/100 {
		t.Fatalf("before the move: %v", inForce)
	}
	moved = 0
	for i := range 18 {
		period(true)
		if i >= 2 && inForce[1] < guaranteed*97/100 {
			t.Errorf("%d reports after the move: %v", i+1, inForce)
		}
	}
	if inForce[0] > guaranteed*4/100 {
		t.Errorf("the node without tasks keeps %d", inForce[0])
	}
	if part := float64(moved) / (18 * guaranteed); part < 0.97 || part > 1.03 {
		t.Errorf("in the 18 s after the move, the application had %.3f of its rate", part)
	}
}

// TestManyAnswersKeepThePart: tasks move between two nodes every four seconds, and nodes report more often than the broker divides. What the node
// with the tasks has before the next division never falls, and comes out of its room once.
func TestManyAnswersKeepThePart(t *testing.T) {
	const guaranteed = 100 << 20
	for _, answers := range []int{1, 2, 5, 100} {
		rate, parts := &coord.TotalRate{}, []*coord.RatePart{{}, {}}
		rate.Set(policy.Total{Reserve: guaranteed}, 0)
		room, free, left := []int64{120 << 20, 120 << 20}, []int64{0, 0}, []int64{0, 0}
		there, gave := 0, 0
		report := func(i int) coord.Service {
			if i != there {
				return coord.Service{}
			}
			return coord.Service{Bytes: max(parts[i].Sent().Reserve, 1<<20), Hungry: 1}
		}
		for division := range 64 {
			if division%8 == 0 {
				there = 1 - there
			}
			for answer := range answers {
				for i, p := range parts {
					before := p.Sent().Reserve
					got := rate.Take(p, report(i), &free[i]).Reserve
					if i == there && answer > 0 && got < before {
						t.Fatalf("after division %d, answer %d of %d lowers the part from %d to %d", division, answer+1, answers, before, got)
					}
					more := max(0, got-p.Due().Reserve)
					if more > 0 {
						gave++
					}
					if free[i] != left[i]-more {
						t.Fatalf("after division %d, answer %d of %d gives %d more, and of the room of %d %d are left", division, answer+1, answers, more, left[i], free[i])
					}
				}
			}
			rate.Clear()
			for i, p := range parts {
				rate.Place(p, i, report(i))
			}
			rate.Note(time.Duration(division)*500*time.Millisecond, guaranteed, true)
			free = coord.DivideReserves([]*coord.TotalRate{rate}, room)
			left = slices.Clone(free)
		}
		if gave == 0 {
			t.Errorf("none of %d answers for each division gave more than the division", answers)
		}
	}
}

// TestTasksThatMoveAnywhere draws the nodes, the moments of their reports, and the places of the tasks. Each node moves its part while it
// has tasks, as a busy disk does. The application has its whole rate four seconds after a move. Two parts of the rate may be missing: what
// nodes without tasks keep, and the deviation of a division that stays. The application never has more in 30 s than its rate and its
// accounts allow.
func TestTasksThatMoveAnywhere(t *testing.T) {
	const total, step = 100 << 20, 250 * time.Millisecond
	for _, kind := range []string{"reserve", "limit"} {
		t.Run(kind, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				nodes := rapid.IntRange(1, 5).Draw(t, "nodes")
				rate, parts, meters := &coord.TotalRate{}, make([]coord.RatePart, nodes), make([]coord.RateMeter, nodes)
				of := func(t policy.Total) int64 { return t.Reserve }
				rates, most := policy.Total{Reserve: total}, 1.05*30*total+7*total
				if kind == "limit" {
					rates, most = policy.Total{Limit: total}, 1.02*30*total+float64(total)/100
					of = func(t policy.Total) int64 { return t.Limit }
				}
				rate.Set(rates, 0)
				phase, there := make([]int, nodes), make([]bool, nodes)
				moved, wanted, services := make([]float64, nodes), make([]time.Duration, nodes), make([]coord.Service, nodes)
				free, room := make([]int64, nodes), make([]int64, nodes)
				for i := range nodes {
					phase[i], room[i] = rapid.IntRange(0, 3).Draw(t, "phase"), coord.UnknownRoom
				}
				var sums []float64 // by step
				since := 0         // the last move
				for at := range 4 * rapid.IntRange(30, 90).Draw(t, "seconds") {
					if at == 0 || rapid.IntRange(0, 39).Draw(t, "move") == 0 {
						since = at
						for i := range there {
							there[i] = rapid.Bool().Draw(t, "there")
						}
						there[rapid.IntRange(0, nodes-1).Draw(t, "one")] = true
					}
					sum := 0.0
					for i := range nodes {
						if there[i] {
							bytes := float64(of(parts[i].Sent())) * step.Seconds()
							moved[i], wanted[i], sum = moved[i]+bytes, wanted[i]+step, sum+bytes
						}
						if at%4 == phase[i] {
							meters[i].Note(int64(moved[i]), wanted[i], 0, time.Second)
							moved[i], wanted[i], services[i] = 0, 0, coord.Service{}
							meters[i].AddTo(&services[i])
							rate.Take(&parts[i], services[i], &free[i])
						}
					}
					if sums = append(sums, sum); at-since > 16 && sum < 0.9*total*step.Seconds() {
						t.Fatalf("%v after a move, the application has %.3f of its rate: %v", time.Duration(at-since)*step, sum/(total*step.Seconds()), there)
					}
					window := 0.0
					for _, s := range sums[max(0, len(sums)-120):] {
						window += s
					}
					if window > most {
						t.Fatalf("the application had %.3f of its rate in 30 s", window/(30*total))
					}
					if at%2 == 0 {
						all := coord.Service{}
						rate.Clear()
						for i := range parts {
							rate.Place(&parts[i], i, services[i])
							all.Bytes, all.Hungry = all.Bytes+services[i].Bytes, all.Hungry+services[i].Hungry
						}
						rate.Note(time.Duration(at)*step, all.Bytes, all.Hungry > 0)
						rate.DivideLimit()
						free = coord.DivideReserves([]*coord.TotalRate{rate}, room)
					}
				}
			})
		})
	}
}

// TestRateMeter: the rates of members that want more are smoothed, and demand for more is recognized by a backlog or by waits for the limit.
func TestRateMeter(t *testing.T) {
	var m coord.RateMeter
	m.Note(100, 0, 0, time.Second)
	m.Note(200, 0, 0, time.Second)
	if d := m.Demand(7); d.Rate != 200 || d.Hungry || d.Given != 7 {
		t.Errorf("%+v", d)
	}
	if m.Note(100, time.Second, 0, time.Second); m.Demand(0).Rate != 125 { // (100/2 + 200/2)/2 + 100/2: a request may have missed the period
		t.Errorf("%+v", m.Demand(0))
	}
	if m.Note(0, 0, 0, time.Second); m.Demand(0).Rate != 0 {
		t.Errorf("the demand of tasks that have gone: %+v", m.Demand(0))
	}
	if m.Note(1, 1, 0, time.Second); !m.Demand(0).Hungry {
		t.Errorf("the demand of tasks that have come: %+v", m.Demand(0))
	}
	for _, hungry := range []struct {
		wanted time.Duration
		waits  int64
		want   bool
	}{{499 * time.Millisecond, 0, false}, {500 * time.Millisecond, 0, true}, {0, 1, true}} {
		m.Note(150, hungry.wanted, hungry.waits, time.Second)
		s := coord.Service{Bytes: coord.MaxBytesRate}
		m.AddTo(&s)
		if (s.Hungry > 0) != hungry.want || s.Bytes != coord.MaxBytesRate {
			t.Errorf("%+v: %+v", hungry, s)
		}
	}
}
