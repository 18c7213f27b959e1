package policy

import (
	"penstock/core/limit"
	"penstock/core/reserve"
)

// Total holds the rates of a whole application, in bytes per second over all devices of all nodes, reads and
// writes together. The broker divides them among the nodes where the application is at work (coord.DivideRate).
type Total struct {
	Reserve int64 // guaranteed; MinTotal to limit.MaxRate, 0: none
	Limit   int64 // MinTotal to limit.MaxRate, 0: none
}

// MinTotal is the smallest total rate, in bytes per second. A node with a smaller part could not keep it, because
// MinLimit is the lowest limit of a device.
const MinTotal = 1 << 20

func (r *Rule) validateTotal(add func(field, format string, args ...any)) {
	t := r.Total
	switch {
	case t.Reserve != 0 && (t.Reserve < MinTotal || t.Reserve > limit.MaxRate):
		add("total_reserve", "total_reserve %d: use %d (1MiB) to %d bytes a second", t.Reserve, int64(MinTotal), int64(limit.MaxRate))
	case t.Limit != 0 && (t.Limit < MinTotal || t.Limit > limit.MaxRate):
		add("total_limit", "total_limit %d: use %d (1MiB) to %d bytes a second", t.Limit, int64(MinTotal), int64(limit.MaxRate))
	case t.Reserve > 0 && t.Limit > 0 && t.Reserve > t.Limit:
		add("total_reserve", "total_reserve %d is above the total_limit %d", t.Reserve, t.Limit)
	case t.Reserve > 0 && r.Reserve != (reserve.Rate{}):
		add("total_reserve", "reserve and total_reserve: guarantee a rate of each device or of the whole cluster, not both")
	}
}
