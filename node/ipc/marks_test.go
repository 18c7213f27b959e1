package ipc

import (
	"bytes"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"penstock/wire"
)

// The peer gets the marks of each stream in order, and always the last one, however put and take
// are interleaved.
func TestMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.IntRange(1, 600).Draw(t, "bound")
		m := newMarks(bound, wire.Version)
		put, got := map[uint32][]int64{}, map[uint32]int{} // got: how many of those put have been sent
		take := func() {
			buf, err := m.append(nil)
			if err != nil {
				t.Fatal(err)
			}
			r, n := wire.NewReader(bytes.NewReader(buf)), 0
			for {
				f, err := r.Next()
				if err != nil {
					break
				}
				n++
				mark := f.(wire.Mark)
				at := -1
				for i := got[mark.Stream]; i < len(put[mark.Stream]); i++ {
					if put[mark.Stream][i] == mark.Position {
						at = i
					}
				}
				if at < 0 {
					t.Fatalf("stream %d: %d came, after %d of %v", mark.Stream, mark.Position, got[mark.Stream], put[mark.Stream])
				}
				got[mark.Stream] = at + 1
			}
			if n > sendAtOnce {
				t.Fatalf("%d marks at once", n)
			}
		}
		serial := int64(0)
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "take") == 0 {
				take()
				continue
			}
			for range rapid.IntRange(1, 20).Draw(t, "burst") {
				stream := rapid.Uint32Range(0, 700).Draw(t, "stream")
				serial++
				if news := len(put[stream]) > got[stream]; m.put(stream, serial) {
					put[stream] = append(put[stream], serial)
				} else if news || len(m.order) < bound {
					t.Fatalf("a mark was left with %d of %d streams", len(m.order), bound)
				}
			}
		}
		for len(m.order) > 0 {
			select {
			case <-m.news:
			default:
				t.Fatal("there is news that nothing announces")
			}
			take()
		}
		for stream, all := range put {
			if got[stream] != len(all) {
				t.Fatalf("stream %d: the last mark did not come", stream)
			}
		}
		if m.latest != nil || m.order != nil {
			t.Fatal("memory is kept without news")
		}
	})
}

// A connection whose streams have no new marks needs hardly any memory.
func TestMarksOfIdleConnections(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	all := make([]*marks, MaxConnections)
	for i := range all {
		all[i] = newMarks(2*MaxStreams, wire.Version)
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / MaxConnections; each > 1<<10 {
		t.Errorf("%d bytes each", each)
	}
	runtime.KeepAlive(all)
}

// A peer with few streams is also disconnected if its streams get new marks without pause and it
// reads none.
func TestMarksThatNobodyReads(t *testing.T) {
	s, path := serve(t, &daemon{alive: 1}, true)
	c := dial(t, path)
	if _, err := c.Write(frames(t, hello)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent", func() bool { return len(s.Agents()) == 1 })
	s.mu.Lock()
	var conn *connection
	for one := range s.agents {
		conn = one
	}
	s.mu.Unlock()
	position := int64(0)
	eventually(t, "the peer to be counted", func() bool {
		for stream := range uint32(sendAtOnce) {
			position++
			conn.Mark(stream, position)
		}
		return s.Stats.SlowPeers.Load() == 1
	})
	eventually(t, "its end", func() bool { return len(s.Agents()) == 0 })
}
