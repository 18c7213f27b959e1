package node

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"penstock/node/device"
	"penstock/node/monitor"
)

// How much of what was written may stay in the page cache is natively the kernel's to
// say: what may be dirty before it writes by itself, of the whole machine. Where the
// settings do not say otherwise the disks in use share three quarters of that, each
// half of its part for backlogs and half for what may yet be deleted
// (device.Config.Dirty and Lazy). An idle disk has little; when it is used, it has its
// part within some seconds.

const (
	roomEvery = 4                // turns of the watch between two looks at the kernel's threshold
	roomIdle  = 30 * time.Second // a disk is in use until it was idle for so long
	leastLazy = 1 << 20          // of an idle disk, or where the kernel leaves nothing: a small spill
)

// What is staged ahead of readers has room likewise: an eighth of the machine's memory, which
// disks in use share.
const stagedPart = 8

// stagedRoom is what may be staged on each of so many disks in use; 0: not known.
func stagedRoom(disks int) int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(uint64(info.Totalram)*uint64(info.Unit)) / stagedPart / int64(max(1, disks))
}

// room is what may be dirty of a disk, in bytes.
type room struct{ dirty, lazy int64 }

// wish is what is known of a disk before its room is: what the settings say, 0 where
// they say nothing, and the least of both.
type wish struct {
	set   room
	least room
	inUse bool
}

// divide gives each disk its room, of what the kernel lets be dirty on the machine:
// what is set, the least to disks that are idle, and equal parts of what is left.
func divide(background int64, wishes []wish) []room {
	left, sharing := background/4*3, int64(0)
	for _, w := range wishes {
		for _, half := range []struct{ set, least int64 }{{w.set.dirty, w.least.dirty}, {w.set.lazy, w.least.lazy}} {
			switch {
			case half.set > 0:
				left -= half.set
			case w.inUse:
				sharing++
			default:
				left -= half.least
			}
		}
	}
	part := max(0, left) / max(1, sharing)
	rooms := make([]room, len(wishes))
	for i, w := range wishes {
		least := w.least
		if w.inUse {
			least = room{max(least.dirty, part), max(least.lazy, part)}
		}
		rooms[i] = room{cmp.Or(w.set.dirty, least.dirty), cmp.Or(w.set.lazy, least.lazy)}
	}
	return rooms
}

// shareRoom tells the loops their part. Without the kernel's word their own defaults
// stand.
func (d *Daemon) shareRoom() {
	background, err := monitor.DirtyBackground(procfs)
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var disks []*governed
	var wishes []wish
	for _, name := range slices.Sorted(maps.Keys(d.devices)) {
		g := d.devices[name]
		if g.config.Network {
			continue
		}
		w := wish{least: room{g.config.Backlog, leastLazy}, inUse: time.Since(time.Unix(0, g.used.Load())) < roomIdle}
		switch dirty, lazy := d.settings.SetsRoom(name); {
		case dirty && lazy:
			w.set = room{g.config.Dirty, g.config.Lazy}
		case dirty:
			w.set.dirty = g.config.Dirty
		case lazy:
			w.set.lazy = g.config.Lazy
		}
		disks, wishes = append(disks, g), append(wishes, w)
	}
	inUse := 0
	for _, w := range wishes {
		if w.inUse {
			inUse++
		}
	}
	staged := stagedRoom(inUse)
	for i, now := range divide(background, wishes) {
		g := disks[i]
		was, of := g.room.Load(), staged
		if g.config.Staged > 0 && d.settings.SetsStaged(g.dev.Name) {
			of = g.config.Staged
		}
		if differ(was.dirty, now.dirty) || differ(was.lazy, now.lazy) || differ(g.staged.Load(), of) {
			g.room.Store(&now)
			g.staged.Store(of)
			nudge(g.roomy)
		}
	}
}

// notice keeps when the device was last in use: when somebody had something open or
// undrained there.
func (g *governed) notice(snap device.Snapshot) {
	for _, f := range snap.Flows {
		if f.Streams > 0 || f.Backlog > 0 {
			g.used.Store(time.Now().UnixNano())
			return
		}
	}
}

// differ leaves out changes that are not worth telling.
func differ(was, now int64) bool { return now > was+was/8 || now < was-was/8 }
