package sfq_test

import (
	"fmt"
	"testing"

	"penstock/core/sfq"
)

// BenchmarkDecision is one dispatched request from end to end: Next, Complete,
// and the flow's next Submit, with every flow backlogged.
func BenchmarkDecision(b *testing.B) {
	for _, flows := range []int{10, 1000, 10_000} {
		for _, corrected := range []bool{false, true} {
			name := fmt.Sprintf("flows=%d", flows)
			if corrected {
				name += "/corrected"
			}
			b.Run(name, func(b *testing.B) {
				s, err := sfq.New(sfq.Config{Algorithm: "sfqd", Depth: 4})
				if err != nil {
					b.Fatal(err)
				}
				cost := func(i int) int64 { return int64(64<<10 + i*7919%(1<<20)) }
				for i := range flows {
					f, err := s.AddFlow(1 + i*37%100)
					if err != nil {
						b.Fatal(err)
					}
					for k := range 4 {
						if _, err := s.Submit(f, cost(i+k), 0); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					r, ok := s.Next()
					if !ok {
						b.Fatal("nothing to dispatch")
					}
					actual := r.Cost
					if corrected {
						actual += int64(i & 4095)
					}
					if err := s.Complete(r.Handle, actual); err != nil {
						b.Fatal(err)
					}
					if _, err := s.Submit(r.Flow, cost(i), 0); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkDecisionInQueues is the same of 1,000 flows in 40 queues, on so many levels.
func BenchmarkDecisionInQueues(b *testing.B) {
	for _, levels := range []int{1, 3} {
		b.Run(fmt.Sprintf("levels=%d", levels), func(b *testing.B) {
			s, err := sfq.New(sfq.Config{Algorithm: "sfqd", Depth: 4})
			if err != nil {
				b.Fatal(err)
			}
			for i := range 1000 {
				f, err := s.AddFlow(1 + i*37%100)
				if err != nil {
					b.Fatal(err)
				}
				way := []sfq.Level{{Name: fmt.Sprint(i % 40), Weight: 1 + i%40}}
				for len(way) < levels {
					way = append([]sfq.Level{{Name: fmt.Sprint(i % (40 >> len(way))), Weight: 1 + i%(40>>len(way))}}, way...)
				}
				if err := s.(sfq.Queues).SetQueue(f, way); err != nil {
					b.Fatal(err)
				}
				for k := range 4 {
					if _, err := s.Submit(f, int64(64<<10+(i+k)*7919%(1<<20)), 0); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r, ok := s.Next()
				if !ok {
					b.Fatal("nothing to dispatch")
				}
				if err := s.Complete(r.Handle, r.Cost+int64(i&4095)); err != nil {
					b.Fatal(err)
				}
				if _, err := s.Submit(r.Flow, r.Cost, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
