package coordination

import (
	"fmt"
	"math"

	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/wire/cluster"
)

// take applies an answer. inForce reports whether the shares follow the totals on at least one
// device.
func (c *Client) take(a *cluster.Answer) (inForce bool, err error) {
	if err := c.apps.take(a.GetEntries(), a.GetRates(), a.GetRooms(), nil, nil); err != nil {
		return false, err
	}
	q := a.GetQueues()
	if err := c.queues.take(q.GetEntries(), q.GetRates(), q.GetRooms(), q.GetHad(), q.GetWeights()); err != nil {
		return false, fmt.Errorf("queues: %w", err)
	}
	for _, r := range a.GetRights() {
		e := c.apps.of(r.GetEntry())
		if right, ok := rightOf(r); ok && e != nil {
			c.rights.set(e.name, right, c.isEntry)
			if right.Total != (policy.Total{}) {
				c.totals[e.name] = struct{}{}
			}
		}
	}
	c.bound(a.GetMode())
	if renewed := c.renewLimits(); renewed || len(a.GetRights()) > 0 {
		c.o.Rights(c.rights.all())
		c.divideTotals()
	}
	before := c.State().InForce
	if a.GetSettling() {
		return before, nil // the totals are incomplete; the parts from an earlier broker may still be in force
	}
	answered := false
	for _, t := range c.devices {
		parts, ok := t.coord.Answer(a.GetSequence(), c.right)
		if !ok {
			continue
		}
		named := Parts{Flows: make(map[string]float64, len(parts))}
		for _, p := range parts {
			if p.App >= 0 {
				if e := c.apps.of(uint32(p.App)); e != nil {
					named.Flows[e.name] = p.Weight
				}
			} else if e := c.queues.of(uint32(-1 - p.App)); e != nil {
				if named.Queues == nil {
					named.Queues = map[string]float64{}
				}
				named.Queues[e.path] = p.Weight
			}
		}
		t.device.SetParts(named)
		t.parts, answered = true, true
		inForce = inForce || len(parts) > 0
	}
	if !answered && len(c.apps.byName) > 0 { // the first answer of a stream: the broker has received only names so far
		return before, nil
	}
	return inForce || len(c.apps.byName) == 0, nil
}

// right returns the Right that core/coord needs: for an application from the policy, for a queue
// from its last report. It returns false for a queue that is missing in the broker's answers so
// far.
func (c *Client) right(app int) (coord.Right, bool) {
	if app < 0 {
		e := c.queues.of(uint32(-1 - app))
		if e == nil || !e.known {
			return coord.Right{}, false
		}
		return coord.Right{Weight: e.weight, Total: e.total, In: e.in}, true
	}
	e := c.apps.of(uint32(app))
	if e == nil {
		return coord.Right{}, false
	}
	right, known := c.rights.of(e.name)
	in := 0
	if n := len(right.Queues); known && n > 0 {
		q := c.queues.byName[right.Queues[n-1].Name]
		if q == nil { // the next report creates its entry
			return coord.Right{}, false
		}
		in = queueNumber(q)
	}
	return coord.Right{Weight: right.Weight, Total: e.total, In: in}, known
}

// take stores totals. Only queues have values in had and weights.
func (s *entries) take(numbers []uint32, rates, rooms, had, weights []uint64) error {
	n := len(numbers)
	if n != len(rates) || n != len(rooms) || len(had) != len(weights) || len(had) != 0 && len(had) != n {
		return fmt.Errorf("an answer has %d entries, but its lists have other lengths: rates %d, rooms %d, \"had\" %d, weights %d", n, len(rates), len(rooms), len(had), len(weights))
	}
	for i, number := range numbers {
		// An answer may contain an entry that was freed after the answer was sent.
		e := s.of(number)
		if e == nil || rates[i] > math.MaxInt64 || rooms[i] > math.MaxInt64 {
			continue
		}
		e.total, e.known = coord.Service{Rate: int64(rates[i]), Room: int64(rooms[i])}, true
		if len(had) > 0 && had[i] <= math.MaxInt64 && weights[i] <= math.MaxInt64 {
			e.total.Had, e.total.Weight = int64(had[i]), int64(weights[i])
		}
	}
	return nil
}

// isEntry reports whether an application is reported to the broker.
func (c *Client) isEntry(name string) bool { return c.apps.byName[name] != nil }
