package node

import (
	"maps"
	"slices"

	"penstock/node/monitor"
)

// What may wait in the page cache to be deleted (device.Config.Lazy) is natively the
// kernel's to say: as much as may be dirty before it writes out by itself, of the
// whole machine. Where the settings do not say otherwise the disks share a quarter
// of that, and of what is left beside their backlogs three quarters.

// lazyEvery is how many turns of the watch lie between two looks at the kernel's
// threshold, which moves with the memory that is free.
const lazyEvery = 40

// shareLazy tells the loops their part; d.mu is held.
func (d *Daemon) shareLazy() {
	background, err := monitor.DirtyBackground(procfs)
	if err != nil {
		return // the device's own default stands
	}
	left := background / 4 * 3
	var sharing []*governed
	for _, name := range slices.Sorted(maps.Keys(d.devices)) {
		switch g := d.devices[name]; {
		case g.config.Network:
		case d.settings.SetsLazy(name):
			left -= g.config.Dirty + g.config.Lazy
		default:
			left -= g.config.Dirty
			sharing = append(sharing, g)
		}
	}
	for _, g := range sharing {
		each := max(leastLazy, min(background/4, left)/int64(len(sharing)))
		if was := g.lazy.Load(); each > was+was/8 || each < was-was/8 {
			g.lazy.Store(each)
			g.obeySoon()
		}
	}
}

const leastLazy = 1 << 20 // where the kernel leaves nothing: a small spill
