package sfq_test

import (
	"fmt"
	"testing"

	"penstock/core/sfq"
)

func cost(i int) int64 { return int64(64<<10 + i*7919%(1<<20)) }

// decide performs all calls for one dispatched request: Next, Settle, and Ready for the flow's next
// request.
func decide(b *testing.B, s *sfq.Scheduler, correction, next int64) {
	t, ok := s.Next()
	if !ok {
		b.Fatal("no flow is ready")
	}
	if err := s.Settle(t, t.Cost()+correction); err != nil {
		b.Fatal(err)
	}
	if err := s.Ready(t.Flow(), next); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkDecision measures one decision with all flows ready.
func BenchmarkDecision(b *testing.B) {
	for _, flows := range []int{10, 100, 1000, 10_000} {
		for _, corrected := range []bool{false, true} {
			name := fmt.Sprintf("flows=%d", flows)
			if corrected {
				name += "/corrected"
			}
			b.Run(name, func(b *testing.B) {
				s, err := sfq.New(sfq.Config{})
				if err != nil {
					b.Fatal(err)
				}
				for i := range flows {
					f, err := s.AddFlow(1 + i*37%100)
					if err != nil {
						b.Fatal(err)
					}
					if err := s.Ready(f, cost(i)); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					correction := int64(0)
					if corrected {
						correction = int64(i & 4095)
					}
					decide(b, s, correction, cost(i))
				}
			})
		}
	}
}

// BenchmarkDecisionInQueues measures one decision with 1,000 flows in 40 queues, for several
// numbers of levels.
func BenchmarkDecisionInQueues(b *testing.B) {
	for _, levels := range []int{1, 3} {
		b.Run(fmt.Sprintf("levels=%d", levels), func(b *testing.B) {
			s, err := sfq.New(sfq.Config{})
			if err != nil {
				b.Fatal(err)
			}
			for i := range 1000 {
				f, err := s.AddFlow(1 + i*37%100)
				if err != nil {
					b.Fatal(err)
				}
				path := []sfq.Level{{Name: fmt.Sprint(i % 40), Weight: 1 + i%40}}
				for len(path) < levels {
					path = append([]sfq.Level{{Name: fmt.Sprint(i % (40 >> len(path))), Weight: 1 + i%(40>>len(path))}}, path...)
				}
				if err := s.SetQueue(f, path); err != nil {
					b.Fatal(err)
				}
				if err := s.Ready(f, cost(i)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				decide(b, s, int64(i&4095), cost(i))
			}
		})
	}
}

// BenchmarkTrim measures Trim with 10,000 flows.
func BenchmarkTrim(b *testing.B) {
	s, err := sfq.New(sfq.Config{})
	if err != nil {
		b.Fatal(err)
	}
	for range 10_000 {
		f, err := s.AddFlow(1)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Charge(f, 1000); err != nil {
			b.Fatal(err)
		}
		if err := s.Ready(f, 1000); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Trim()
	}
}
