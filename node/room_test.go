package node

import (
	"testing"

	"pgregory.net/rapid"
)

func TestRoomIsDivided(t *testing.T) {
	const mib = 1 << 20
	least := room{8 * mib, mib}
	for name, c := range map[string]struct {
		background int64
		wishes     []wish
		want       []room
	}{
		"one disk":          {1024 * mib, []wish{{least: least, inUse: true}}, []room{{384 * mib, 384 * mib}}},
		"two disks":         {1024 * mib, []wish{{least: least, inUse: true}, {least: least, inUse: true}}, []room{{192 * mib, 192 * mib}, {192 * mib, 192 * mib}}},
		"one of two idle":   {44 * mib, []wish{{least: least, inUse: true}, {least: least}}, []room{{12 * mib, 12 * mib}, least}},
		"both set":          {1024 * mib, []wish{{set: room{5, 6}, least: least, inUse: true}}, []room{{5, 6}}},
		"dirty set":         {1024 * mib, []wish{{set: room{dirty: 68 * mib}, least: least, inUse: true}}, []room{{68 * mib, 700 * mib}}},
		"lazy set":          {1024 * mib, []wish{{set: room{lazy: 68 * mib}, least: least, inUse: true}}, []room{{700 * mib, 68 * mib}}},
		"little memory":     {4 * mib, []wish{{least: least, inUse: true}, {set: room{lazy: 68 * mib}, least: least, inUse: true}}, []room{least, {8 * mib, 68 * mib}}},
		"one half set":      {1024 * mib, []wish{{set: room{dirty: 468 * mib}, least: least, inUse: true}, {least: least, inUse: true}}, []room{{468 * mib, 100 * mib}, {100 * mib, 100 * mib}}},
		"set, and idle":     {1024 * mib, []wish{{set: room{dirty: 367 * mib}, least: least}, {least: least, inUse: true}}, []room{{367 * mib, mib}, {200 * mib, 200 * mib}}},
		"one set, one not":  {1024 * mib, []wish{{set: room{700 * mib, 48 * mib}, least: least, inUse: true}, {least: least, inUse: true}}, []room{{700 * mib, 48 * mib}, {10 * mib, 10 * mib}}},
		"no disk":           {1024 * mib, nil, nil},
		"nothing for disks": {0, []wish{{least: least, inUse: true}}, []room{least}},
	} {
		got := divide(c.background, c.wishes)
		if len(got) != len(c.want) {
			t.Fatalf("%s: %v", name, got)
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: disk %d has %v, want %v", name, i, got[i], c.want[i])
			}
		}
	}
}

// Apart from minima and values in the settings, at most three quarters of the threshold are
// divided.
func TestRoomIsNeverMoreThanThereIs(t *testing.T) {
	bytes := rapid.Int64Range(0, 1<<45)
	some := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 1<<45))
	rapid.Check(t, func(t *rapid.T) {
		background := bytes.Draw(t, "background")
		wishes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) wish {
			return wish{set: room{some.Draw(t, "dirty"), some.Draw(t, "lazy")},
				least: room{bytes.Draw(t, "least"), leastLazy}, inUse: rapid.Bool().Draw(t, "in use")}
		}), 0, 8).Draw(t, "disks")
		var given, forced int64
		for i, r := range divide(background, wishes) {
			w := wishes[i]
			if w.set.dirty > 0 && r.dirty != w.set.dirty || w.set.lazy > 0 && r.lazy != w.set.lazy {
				t.Fatalf("disk %d: %v set, %v given", i, w.set, r)
			}
			if w.set.dirty == 0 && r.dirty < w.least.dirty || w.set.lazy == 0 && r.lazy < w.least.lazy {
				t.Fatalf("disk %d: %v at least, %v given", i, w.least, r)
			}
			given += r.dirty + r.lazy
			forced += max(w.least.dirty, w.set.dirty) + max(w.least.lazy, w.set.lazy)
		}
		if given > background/4*3+forced {
			t.Fatalf("%d given of %d", given, background)
		}
	})
}
