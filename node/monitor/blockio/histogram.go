package blockio

import "time"

// The octaves of a Histogram, as in bpf/blockio.c.
const (
	firstOctave = 13 // begins at 2^13 ns
	lastOctave  = 33
	parts       = 4 // of an octave
)

// Buckets is the number of buckets of a Histogram.
const Buckets = 1 + parts*(lastOctave-firstOctave+1) + 1

// Histogram counts requests by their latency, from issue to completion. The first bucket has those
// below 8.2 us, the last one those of 17.2 s and more. Each octave between them has four buckets of
// equal width, so the bounds of a bucket differ by a quarter at most.
type Histogram struct {
	Counts [Buckets]uint64
	Time   time.Duration // sum of the latencies
}

// Below returns the upper bound of a bucket; its latencies are smaller. The last bucket has no bound,
// and Below returns its lower one.
func Below(bucket int) time.Duration {
	switch {
	case bucket <= 0:
		return 1 << firstOctave
	case bucket >= Buckets-1:
		return 1 << (lastOctave + 1)
	}
	octave, part := firstOctave+(bucket-1)/parts, (bucket-1)%parts
	return time.Duration(parts+part+1) << octave / parts
}

// Requests returns the number of requests.
func (h Histogram) Requests() int64 {
	var n uint64
	for _, c := range h.Counts {
		n += c
	}
	return int64(n)
}

// add adds the requests of o.
func (h *Histogram) add(o *Histogram) {
	for i, c := range o.Counts {
		h.Counts[i] += c
	}
	h.Time += o.Time
}

// since returns the requests that were counted after old, an earlier state of h.
func (h *Histogram) since(old *Histogram) (d Histogram) {
	for i, c := range h.Counts {
		// The kernel changes its counts while they are read.
		d.Counts[i] = c - min(c, old.Counts[i])
	}
	d.Time = max(0, h.Time-old.Time)
	return d
}

// Quantile returns the latency that a part q of the requests, 0..1, does not exceed, as if the
// requests of a bucket were evenly distributed in it. It is wrong by a quarter at most, and 0 if there
// is no request.
func (h Histogram) Quantile(q float64) time.Duration {
	n := h.Requests()
	if n == 0 {
		return 0
	}
	rank, lower := max(0, min(1, q))*float64(n), time.Duration(0)
	for i, c := range h.Counts {
		upper := Below(i)
		if c > 0 && rank <= float64(c) {
			return lower + time.Duration(float64(upper-lower)*rank/float64(c))
		}
		rank, lower = rank-float64(c), upper
	}
	return lower
}
