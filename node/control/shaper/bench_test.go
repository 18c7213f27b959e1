package shaper

import (
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"penstock/lab/netns"
)

// median returns the middle value.
func median[T float64 | time.Duration](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}

// BenchmarkRateInForce changes the rate of a connection between 10 and 40 MB/s while data flows, as the
// benchmark of package pacing does. It reports the milliseconds from the call of Set until the rate is in
// force, the rate's error in percent, and the connection's round trip time at 10 MB/s.
func BenchmarkRateInForce(b *testing.B) {
	for _, c := range []struct {
		name     string
		from, to func(*rig) *netns.Machine
		address  func(*rig) netip.Addr
	}{
		{"egress/loopback", here, here, func(*rig) netip.Addr { return netip.MustParseAddr("127.0.0.1") }},
		{"egress/veth", here, peer, func(r *rig) netip.Addr { return r.peer.Address }},
		{"ingress/veth", peer, here, func(r *rig) netip.Addr { return r.here.Address }},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := build(b)
			r.open()
			s := r.send(c.from(r), c.to(r), c.address(r))
			const low, high, settle, measure = 10 * mb, 40 * mb, 300 * time.Millisecond, 700 * time.Millisecond
			if err := r.set(s.shaped, high); err != nil {
				b.Fatal(err)
			}
			s.arriving.Over(settle)
			old, next := s.arriving.Over(measure), low
			var delays, errors []float64
			var rtts []time.Duration
			for b.Loop() {
				got, err := s.arriving.Change(old, func() error { return r.set(s.shaped, uint64(next)) }, settle, measure)
				if err != nil {
					b.Fatal(err)
				}
				b.Logf("%.0f to %.0f MB/s: %.2f MB/s after %v, rtt %v", old/mb, next/mb, got.Rate/mb, got.Delay, s.rtt(b))
				delays = append(delays, float64(got.Delay)/float64(time.Millisecond))
				errors = append(errors, 100*math.Abs(got.Rate/next-1))
				if next == low {
					rtts = append(rtts, s.rtt(b))
				}
				old, next = got.Rate, low+high-next
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(delays), "ms-to-force")
			b.ReportMetric(slices.Max(delays), "ms-to-force-max")
			b.ReportMetric(median(errors), "%-error")
			b.ReportMetric(slices.Max(errors), "%-error-max")
			b.ReportMetric(float64(median(rtts).Microseconds()), "us-rtt")
		})
	}
}
