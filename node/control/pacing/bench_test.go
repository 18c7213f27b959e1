package pacing

import (
	"math"
	"slices"
	"testing"
	"time"

	"penstock/lab/rate"
)

// median returns the middle value.
func median[T float64 | time.Duration](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}

// rtt returns the median of the connection's smoothed round trip time during the time over.
func (s *stream) rtt(b *testing.B, over time.Duration) time.Duration {
	b.Helper()
	var all []time.Duration
	for end := time.Now().Add(over); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		_, rtt := s.pacing(b)
		all = append(all, rtt)
	}
	return median(all)
}

// BenchmarkRateInForce changes the rate of a connection between 10 and 40 MB/s while data flows. It reports
// the milliseconds from the call of Set until the rate is in force, and the rate's error in percent. It also
// reports the connection's round trip time at 10 MB/s, relative to the same connection without pacing: once
// while its process sends 10 MB/s by itself, and once while the process sends as fast as it can. The receiver
// acknowledges when it reads. So the round trip time contains the time for which the receiver waits for a
// CPU, and only the figures of a quiet machine are meaningful.
func BenchmarkRateInForce(b *testing.B) {
	b.Run("loopback", func(b *testing.B) { rateInForce(b, connect(b, listen(b, "127.0.0.1:0"))) })
	b.Run("veth", func(b *testing.B) { rateInForce(b, connectMachines(b)) })
}

func rateInForce(b *testing.B, s *stream) {
	_, p := opened(b)
	const low, high, settle, measure = 10 * mb, 40 * mb, 300 * time.Millisecond, 700 * time.Millisecond
	s.tell(b, "go")
	arriving := rate.New(s.got)
	arriving.Over(settle)
	fast := s.rtt(b, measure)
	set := func(r float64) func() error {
		return func() error { return p.Set(s.socket, uint64(r), "a benchmark") }
	}
	if err := set(high)(); err != nil {
		b.Fatal(err)
	}
	arriving.Over(settle)
	old, next := arriving.Over(measure), low
	var delays, errors []float64
	var paced, gentle []time.Duration
	for b.Loop() {
		got, err := arriving.Change(old, set(next), settle, measure)
		if err != nil {
			b.Fatal(err)
		}
		b.Logf("%.0f to %.0f MB/s: %.2f MB/s after %v", old/mb, next/mb, got.Rate/mb, got.Delay)
		delays = append(delays, float64(got.Delay)/float64(time.Millisecond))
		errors = append(errors, 100*math.Abs(got.Rate/next-1))
		if next == low {
			// The round trip time depends on what else the machine does, so the two are measured in turn.
			paced = append(paced, s.rtt(b, settle))
			if err := p.Lift(s.socket); err != nil {
				b.Fatal(err)
			}
			s.tell(b, "go 10000000")
			arriving.Over(settle)
			gentle = append(gentle, s.rtt(b, settle))
			s.tell(b, "go")
			if err := set(low)(); err != nil {
				b.Fatal(err)
			}
			arriving.Over(settle)
		}
		old, next = got.Rate, low+high-next
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(delays), "ms-to-force")
	b.ReportMetric(slices.Max(delays), "ms-to-force-max")
	b.ReportMetric(median(errors), "%-error")
	b.ReportMetric(slices.Max(errors), "%-error-max")
	rtt := median(paced)
	b.ReportMetric(float64(rtt.Microseconds()), "us-rtt-paced")
	b.ReportMetric(float64(rtt)/float64(median(gentle)), "rtt-ratio-same-rate")
	b.ReportMetric(float64(rtt)/float64(fast), "rtt-ratio-full-speed")
}
