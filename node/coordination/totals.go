package coordination

import (
	"maps"
	"slices"
	"time"

	"penstock/core/coord"
	"penstock/core/policy"
)

// noteDemand adds an application's use of a device in one period to its entry, and keeps its demand.
func (t *tracked) noteDemand(e *entry, u Use, length time.Duration) {
	d := t.demands[e.name]
	d.Note(u.Bytes, u.Wanted, u.LimitWaits, length)
	t.demands[e.name] = d
	d.AddTo(&e.sum)
}

// divideTotals divides the node's parts of total rates among the devices that the applications use. It is called when
// demands or parts change, and once per period while no broker answers.
func (c *Client) divideTotals() {
	silence := time.Since(c.State().Answered)
	due := map[*tracked]map[string]policy.Total{}
	for name := range c.totals {
		right, _ := c.rights.of(name)
		if right.Total == (policy.Total{}) {
			if !c.rights.lapsed { // otherwise its limit may come back
				delete(c.totals, name)
			}
			continue
		}
		var at []*tracked
		var reserves, limits []coord.Demand
		for _, device := range slices.Sorted(maps.Keys(c.devices)) {
			t := c.devices[device]
			if d, known := t.demands[name]; known {
				given := t.totals[name]
				at = append(at, t)
				reserves = append(reserves, d.Demand(given.Reserve))
				limits = append(limits, d.Demand(given.Limit))
			}
		}
		reserve := coord.DivideRate(nil, coord.ReserveWithoutBroker(right.Total.Reserve, silence), reserves)
		limit := coord.DivideRate(nil, right.Total.Limit, limits)
		for i, t := range at {
			if due[t] == nil {
				due[t] = map[string]policy.Total{}
			}
			if right.Total.Limit > 0 {
				limit[i] = max(1, limit[i]) // 0 means no limit
			}
			due[t][name] = policy.Total{Reserve: reserve[i], Limit: limit[i]}
		}
	}
	for _, t := range c.devices {
		if !maps.Equal(due[t], t.totals) {
			t.totals = due[t]
			t.device.SetTotals(due[t])
		}
	}
}
