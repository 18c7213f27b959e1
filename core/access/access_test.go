package access

import (
	"math/rand/v2"
	"testing"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

func TestSequentialReadsGetLongerStreams(t *testing.T) {
	var r Reads
	const size = 200 * mib
	var streams []int64
	to := int64(0)
	for off := int64(0); off < size; off += 128 * kib {
		next, fresh := r.Next(off, 128*kib, to, size)
		if fresh {
			streams = append(streams, (next-off)/mib)
		}
		if to = next; to < off+128*kib {
			t.Fatalf("at %d: the stream ends at %d", off, to)
		}
	}
	want := []int64{1, 4, 195}
	if len(streams) != len(want) {
		t.Fatalf("streams of %v MiB", streams)
	}
	for i := range want {
		if streams[i] != want[i] {
			t.Errorf("streams of %v MiB, want %v", streams, want)
		}
	}
}

func TestReads(t *testing.T) {
	type op struct {
		off, length, staged, to int64
		fresh                   bool
	}
	for name, ops := range map[string][]op{
		"random": {
			{10 * mib, 4 * kib, 0, 10*mib + 4*kib, true},
			{50 * mib, 4 * kib, 0, 50*mib + 4*kib, true},
			{20 * mib, 4 * kib, 0, 20*mib + 4*kib, true},
		},
		"sequential from the middle: by the second read": {
			{10 * mib, 64 * kib, 0, 10*mib + 64*kib, true},
			{10*mib + 64*kib, 64 * kib, 0, 11*mib + 64*kib, true},
			{10*mib + 128*kib, 64 * kib, 0, 11*mib + 64*kib, false},
		},
		"resident bytes are passed without an announcement": {
			{0, 64 * kib, 0, mib, true},
			{512 * kib, 64 * kib, 512 * kib, mib, false},
		},
		"beyond the staged bytes is random": {
			{0, 64 * kib, 0, mib, true},
			{768 * kib, 64 * kib, 512 * kib, 832 * kib, true},
		},
		"backwards is random": {
			{0, 64 * kib, 0, mib, true},
			{64 * kib, 64 * kib, mib, mib, false},
			{0, 64 * kib, mib, 64 * kib, true},
		},
		"the file's end": {
			{0, 4 * mib, 0, 100, true},
			{100, 4 * mib, 100, 100, false},
		},
		"the same bytes again": {
			{0, 64 * kib, 0, mib, true},
			{0, 64 * kib, 0, mib, false},
		},
	} {
		size := int64(100 * mib)
		if name == "the file's end" {
			size = 100
		}
		var r Reads
		for i, o := range ops {
			if to, fresh := r.Next(o.off, o.length, o.staged, size); to != o.to || fresh != o.fresh {
				t.Errorf("%s, read %d: to %d, fresh %v; want %d, %v", name, i, to, fresh, o.to, o.fresh)
			}
		}
	}
}

// A stream always has the operation's bytes, and never reaches further than the file.
func TestReadsAreCovered(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var r Reads
		size, from, to := 1+random.Int64N(1<<30), int64(0), int64(0)
		for range 100 {
			off := random.Int64N(size)
			if random.IntN(3) > 0 {
				off = min(r.end, size-1)
			}
			length := 1 + random.Int64N(4*mib)
			next, fresh := r.Next(off, length, from+random.Int64N(to-from+1), size)
			if fresh {
				from = off
			}
			if to = next; from > off || to < min(off+length, size) || to > size {
				t.Fatalf("read of %d bytes at %d of %d: stream %d to %d", length, off, size, from, to)
			}
		}
	}
}

func TestWrites(t *testing.T) {
	var w Writes
	for i, o := range []struct {
		off, length int64
		fresh       bool
	}{{0, 100, true}, {100, 50, false}, {150, 50, false}, {150, 50, true}, {0, 10, true}, {10, 1, false}} {
		if fresh := w.Next(o.off, o.length); fresh != o.fresh {
			t.Errorf("write %d: fresh %v", i, fresh)
		}
	}
	if r := Room(100, 10); r != 110 {
		t.Errorf("room of a short write: %d", r)
	}
	if r := Room(0, mib); r != 64*kib {
		t.Errorf("room of a long write: %d", r)
	}
}
