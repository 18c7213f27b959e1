package coordination

import (
	"fmt"
	"math"

	"penstock/core/coord"
	"penstock/wire/cluster"
)

// take puts an answer into force, and says whether it is: on some device shares are of the
// totals.
func (c *Client) take(a *cluster.Answer) (inForce bool, err error) {
	entries, rates, rooms := a.GetEntries(), a.GetRates(), a.GetRooms()
	if len(entries) != len(rates) || len(entries) != len(rooms) {
		return false, fmt.Errorf("an answer has %d entries with %d rates and %d rooms", len(entries), len(rates), len(rooms))
	}
	for i, n := range entries {
		// An entry that was freed meanwhile may be in an answer that was under way.
		if int(n) < len(c.byNumber) && c.byNumber[n] != nil && rates[i] <= math.MaxInt64 && rooms[i] <= math.MaxInt64 {
			c.byNumber[n].total = coord.Service{Rate: int64(rates[i]), Room: int64(rooms[i])}
		}
	}
	for _, r := range a.GetRights() {
		n := r.GetEntry()
		if int(n) >= len(c.byNumber) || c.byNumber[n] == nil || !(r.GetWeight() > 0) || r.GetWeight() > 1e12 || r.GetLimit() > math.MaxInt64 {
			continue
		}
		c.rights.set(c.byNumber[n].name, rightOf(r), c.isEntry)
	}
	if len(a.GetRights()) > 0 {
		c.o.Rights(c.rights.all())
	}
	before := c.State().InForce
	if a.GetSettling() {
		return before, nil // what was in force before it started may be, yet
	}
	answered := false
	for _, t := range c.devices {
		parts, ok := t.coord.Answer(a.GetSequence(), func(app int) (coord.Right, bool) {
			e := c.byNumber[app]
			if e == nil {
				return coord.Right{}, false
			}
			right, known := c.rights.of(e.name)
			return coord.Right{Weight: right.Weight, Total: e.total}, known
		})
		if !ok {
			continue
		}
		named := make(map[string]float64, len(parts))
		for _, p := range parts {
			if e := c.byNumber[p.App]; e != nil {
				named[e.name] = p.Weight
			}
		}
		t.device.SetParts(named)
		t.parts, answered = true, true
		inForce = inForce || len(named) > 0
	}
	if !answered && len(c.entries) > 0 { // a stream's first: it had the names only
		return before, nil
	}
	return inForce || len(c.entries) == 0, nil
}

// isEntry tells whether an application is reported.
func (c *Client) isEntry(name string) bool { return c.entries[name] != nil }
