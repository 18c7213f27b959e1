package broker

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"penstock/core/coord"
	"penstock/wire/cluster"
)

// FuzzReports: whatever a node sends, the broker answers or refuses it, no total leaves its
// bounds, and nothing is left when the node is gone.
func FuzzReports(f *testing.F) {
	seed := func(r *cluster.Report) []byte {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	good := seed(&cluster.Report{Sequence: 1, Names: []*cluster.Name{{Entry: 0, Application: "a"}, {Entry: 3, Application: "b"}},
		Entries: []uint32{0, 3}, Rates: []uint64{coord.Second / 2, 7}, Rooms: []uint64{coord.Second, 0}})
	f.Add(good, seed(&cluster.Report{Sequence: 2, Names: []*cluster.Name{{Entry: 3}, {Entry: 0, Application: "b"}}}))
	f.Add(good, seed(&cluster.Report{Sequence: 2, Entries: []uint32{9}, Rates: []uint64{1 << 63}, Rooms: []uint64{1 << 63}}))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		b, err := New(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := b.totals.Join()
		if err != nil {
			t.Fatal(err)
		}
		s := &session{node: &cluster.Node{Name: "n"}, member: m, named: map[string]int{}}
		b.sessions["n"] = s
		for _, text := range [][]byte{first, second} {
			var r cluster.Report
			if proto.Unmarshal(text, &r) != nil {
				return
			}
			a, err := b.take(s, &r)
			if err != nil {
				break
			}
			if len(a.GetEntries()) != len(a.GetRates()) || len(a.GetEntries()) != len(a.GetRooms()) || a.GetSequence() != r.GetSequence() {
				t.Fatalf("an answer of %v", a)
			}
			b.mu.Lock()
			b.settle()
			b.mu.Unlock()
		}
		sum := int64(0)
		b.totals.Each(func(_ coord.App, _ string, _ int, total coord.Service) {
			if total.Rate < 0 || total.Room < 0 {
				t.Fatalf("a total of %v", total)
			}
			sum += total.Rate
		})
		if sum > coord.MaxRate {
			t.Fatalf("one node has %d in the totals", sum)
		}
		b.leave(s)
		if b.totals.Apps() != 0 || b.totals.Members() != 0 {
			t.Fatal("something is left")
		}
	})
}
