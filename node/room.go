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

// Without Penstock, the kernel decides how many written bytes may stay in the page cache: it starts
// to write by itself at a threshold of dirty memory for the whole machine. Unless the settings say
// otherwise, the disks in use share three quarters of this threshold equally. Each disk uses half
// of its part for backlogs and half for files that may still be deleted (device.Config.Dirty and
// Lazy). An idle disk has little room; when it is used, it gets its part within some seconds.

const (
	roomEvery = 4                // periods of the watch between two reads of the kernel's threshold
	roomIdle  = 30 * time.Second // a disk is in use until it has been idle for this long
	leastLazy = 1 << 20          // minimum for files that may still be deleted, if the disk is idle or no room is left; enough for a small spill
)

// Room for staging ahead of readers is divided in the same way: the disks in use share an eighth of
// the machine's memory.
const stagedPart = 8

// stagedRoom returns how many bytes may be staged on each disk when that many disks are in use; 0
// if the size of the memory is not known.
func stagedRoom(disks int) int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(uint64(info.Totalram)*uint64(info.Unit)) / stagedPart / int64(max(1, disks))
}

// room is the number of bytes of a disk that may be dirty: for backlogs, and for files that may
// still be deleted.
type room struct{ dirty, lazy int64 }

// wish is the input of divide for one disk: the room in the settings (0: not set), and the
// minimum.
type wish struct {
	set   room
	least room
	inUse bool
}

// divide computes each disk's room from background, the kernel's threshold of dirty memory. A value
// in the settings has precedence. Otherwise an idle disk gets the minimum, and the disks in use
// share the rest equally.
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

// shareRoom passes each loop its room. If the kernel reports no threshold, the loops' defaults
// apply.
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
			signal(g.roomChanged)
		}
	}
}

// notice records when the device was last in use: when a flow had an open stream or undrained
// bytes there.
func (g *governed) notice(snap device.Snapshot) {
	for _, f := range snap.Flows {
		if f.Streams > 0 || f.Backlog > 0 {
			g.used.Store(time.Now().UnixNano())
			return
		}
	}
}

// differ reports whether a change is large enough to pass on.
func differ(was, now int64) bool { return now > was+was/8 || now < was-was/8 }
