package broker

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"penstock/core/coord"
	"penstock/wire/cluster"
)

// FuzzReports: with any messages of a node, the broker answers or refuses, totals stay within their
// limits, and nothing is left when the node is gone.
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
	f.Add(seed(&cluster.Report{Sequence: 1, Queues: &cluster.Queues{Names: []*cluster.QueueName{{Entry: 1, Queue: "root"}, {Entry: 0, Queue: "root.a"}},
		Entries: []uint32{0, 1}, Rates: []uint64{coord.Second, coord.Second}, Rooms: []uint64{coord.Second, 0}, Had: []uint64{1, coord.MaxNeed}, Weights: []uint64{0, 1e6}}}),
		seed(&cluster.Report{Sequence: 2, Queues: &cluster.Queues{Names: []*cluster.QueueName{{Entry: 1}}, Entries: []uint32{1}, Rates: []uint64{1}, Rooms: []uint64{1 << 63}, Had: []uint64{1 << 63}, Weights: []uint64{1}}}))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		b, err := New(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := bookedSession(t, b)
		for _, text := range [][]byte{first, second} {
			var r cluster.Report
			if proto.Unmarshal(text, &r) != nil {
				return
			}
			a, err := b.handleReport(s, &r)
			if err != nil {
				break
			}
			if len(a.GetEntries()) != len(a.GetRates()) || len(a.GetEntries()) != len(a.GetRooms()) || a.GetSequence() != r.GetSequence() ||
				len(a.GetQueues().GetEntries()) != len(a.GetQueues().GetRates()) || len(a.GetQueues().GetEntries()) != len(a.GetQueues().GetRooms()) {
				t.Fatalf("an answer of %v", a)
			}
			b.mu.Lock()
			b.computeRights()
			b.mu.Unlock()
		}
		b.queues.Each(func(_ coord.App, name string, _ int, total coord.Service) {
			if total.Rate < 0 || total.Room < 0 || total.Had < 0 || total.Weight < 0 || total.Rate > coord.MaxRate {
				t.Fatalf("a total of %v, of queue %q", total, name)
			}
		})
		sum := int64(0)
		b.totals.Each(func(_ coord.App, _ string, _ int, total coord.Service) {
			if total.Rate < 0 || total.Room < 0 || total.Hindered < 0 || total.Hindered > total.Waiting || total.Waiting > total.Streams || total.Streams > coord.MaxStreams || total.Used > total.Touched {
				t.Fatalf("a total of %v", total)
			}
			sum += total.Rate
		})
		if sum > coord.MaxRate {
			t.Fatalf("one node has %d in the totals", sum)
		}
		b.leave(s)
		if b.totals.Apps() != 0 || b.totals.Members() != 0 || b.queues.Apps() != 0 || b.queues.Members() != 0 {
			t.Fatal("something is left")
		}
	})
}
