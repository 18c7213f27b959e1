package node

import (
	"slices"
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
		"one disk":         {1024 * mib, []wish{{least: least, inUse: true}}, []room{{448 * mib, 448 * mib}}},
		"two disks":        {1024 * mib, []wish{{least: least, inUse: true}, {least: least, inUse: true}}, []room{{224 * mib, 224 * mib}, {224 * mib, 224 * mib}}},
		"one of two idle":  {40 * mib, []wish{{least: least, inUse: true}, {least: least}}, []room{{13 * mib, 13 * mib}, least}},
		"both set":         {1024 * mib, []wish{{set: room{5, 6}, least: least, inUse: true}}, []room{{5, 6}}},
		"dirty set":        {1024 * mib, []wish{{set: room{dirty: 68 * mib}, least: least, inUse: true}}, []room{{68 * mib, 828 * mib}}},
		"lazy set":         {1024 * mib, []wish{{set: room{lazy: 68 * mib}, least: least, inUse: true}}, []room{{828 * mib, 68 * mib}}},
		"little memory":    {4 * mib, []wish{{least: least, inUse: true}, {set: room{lazy: 68 * mib}, least: least, inUse: true}}, []room{least, {8 * mib, 68 * mib}}},
		"one half set":     {1024 * mib, []wish{{set: room{dirty: 596 * mib}, least: least, inUse: true}, {least: least, inUse: true}}, []room{{596 * mib, 100 * mib}, {100 * mib, 100 * mib}}},
		"set, and idle":    {1024 * mib, []wish{{set: room{dirty: 495 * mib}, least: least}, {least: least, inUse: true}}, []room{{495 * mib, mib}, {200 * mib, 200 * mib}}},
		"one set, one not": {1024 * mib, []wish{{set: room{828 * mib, 48 * mib}, least: least, inUse: true}, {least: least, inUse: true}}, []room{{828 * mib, 48 * mib}, {10 * mib, 10 * mib}}},
		"one lends": {1024 * mib, []wish{{least: least, inUse: true, held: 248 * mib}, {least: least, inUse: true, held: 48 * mib}},
			[]room{{374 * mib, 374 * mib}, {224 * mib, 224 * mib}}},
		"two borrow of one": {1152 * mib, []wish{{least: least, inUse: true, held: 200 * mib}, {least: least, inUse: true, held: 200 * mib}, {least: least, inUse: true, held: 16 * mib}},
			[]room{{228 * mib, 228 * mib}, {228 * mib, 228 * mib}, {168 * mib, 168 * mib}}},
		"both need theirs": {1024 * mib, []wish{{least: least, inUse: true, held: 248 * mib}, {least: least, inUse: true, held: 268 * mib}},
			[]room{{224 * mib, 224 * mib}, {224 * mib, 224 * mib}}},
		"set ones do not lend": {1024 * mib, []wish{{set: room{dirty: 96 * mib}, least: least, inUse: true}, {least: least, inUse: true, held: 900 * mib}},
			[]room{{96 * mib, 800 * mib / 3}, {800 * mib / 3, 800 * mib / 3}}},
		"nor borrow": {1024 * mib, []wish{{set: room{dirty: 96 * mib}, least: least, inUse: true, held: 900 * mib}, {least: least, inUse: true}},
			[]room{{96 * mib, 800 * mib / 3}, {800 * mib / 3, 800 * mib / 3}}},
		"three eighths of the part": {1024 * mib, []wish{{least: least, inUse: true, held: 168 * mib}, {least: least, inUse: true}},
			[]room{{224 * mib, 224 * mib}, {224 * mib, 224 * mib}}},
		"more": {1024 * mib, []wish{{least: least, inUse: true, held: 169 * mib}, {least: least, inUse: true}},
			[]room{{392 * mib, 392 * mib}, {224 * mib, 224 * mib}}},
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

// Beyond the least and what is set, no more than seven eighths are given away, and what is
// lent is not in use where it comes from.
func TestRoomIsNotGivenTwice(t *testing.T) {
	bytes := rapid.Int64Range(0, 1<<45)
	some := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 1<<45))
	rapid.Check(t, func(t *rapid.T) {
		background := bytes.Draw(t, "background")
		wishes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) wish {
			return wish{set: room{some.Draw(t, "dirty"), some.Draw(t, "lazy")},
				least: room{bytes.Draw(t, "least"), leastLazy}, held: bytes.Draw(t, "held"), inUse: rapid.Bool().Draw(t, "in use")}
		}), 0, 8).Draw(t, "disks")
		lonely := slices.Clone(wishes)
		for i := range lonely {
			lonely[i].held = 0
		}
		parts := divide(background, lonely)
		var given, used, forced int64
		for i, r := range divide(background, wishes) {
			w := wishes[i]
			if w.set.dirty > 0 && r.dirty != w.set.dirty || w.set.lazy > 0 && r.lazy != w.set.lazy {
				t.Fatalf("disk %d: %v set, %v given", i, w.set, r)
			}
			if w.set.dirty == 0 && r.dirty < w.least.dirty || w.set.lazy == 0 && r.lazy < w.least.lazy {
				t.Fatalf("disk %d: %v at least, %v given", i, w.least, r)
			}
			given += parts[i].dirty + parts[i].lazy
			if r == parts[i] && w.shares() {
				used += min(w.held, r.dirty+r.lazy) // as much as it has
			} else {
				used += r.dirty + r.lazy
			}
			forced += max(w.least.dirty, w.set.dirty) + max(w.least.lazy, w.set.lazy)
		}
		if given > background/8*7+forced || used > background/8*7+forced {
			t.Fatalf("%d given, %d used of %d", given, used, background)
		}
	})
}
