package disk

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// load is a number of clients. Each has one request of the same kind in flight.
type load struct {
	op      Op
	length  int64
	clients int

	bytes     int64
	latencies []int64 // ns
}

func (l *load) rate(span time.Duration) float64 { return float64(l.bytes) / span.Seconds() }

func (l *load) mean() time.Duration {
	var sum int64
	for _, n := range l.latencies {
		sum += n
	}
	return time.Duration(sum / int64(max(len(l.latencies), 1)))
}

// closedLoop drives the channels with loads in virtual time for a span. Each client makes its next
// request as soon as the last one has ended. closedLoop returns the fraction of the time in which
// the disk was busy.
func closedLoop(m Model, span time.Duration, loads ...*load) (busy float64) {
	c := newChannels(m)
	of := map[*request]*load{}
	var u underway
	ask := func(l *load, at int64) {
		r := &request{op: l.op, length: l.length, arrived: at}
		of[r] = l
		c.submit(r)
		u.add(r)
	}
	for _, l := range loads {
		for range l.clients {
			ask(l, 0)
		}
	}
	var service int64
	for u[0].ended <= int64(span) {
		for _, r := range u.take(u[0].ended) {
			l := of[r]
			delete(of, r)
			l.bytes += r.length
			l.latencies = append(l.latencies, r.ended-r.arrived)
			service += r.service
			ask(l, r.ended)
		}
	}
	return float64(service) / float64(span)
}

const curveSpan = 60 * time.Second

func curve(m Model, op Op, length int64, clients int) *load {
	l := &load{op: op, length: length, clients: clients}
	closedLoop(m, curveSpan, l)
	return l
}

// within fails the test if two figures differ by more than a fraction.
func within(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if !(got >= want*(1-part) && got <= want*(1+part)) {
		t.Errorf("%s: %.4g, want %.4g within %g %%", what, got, want, 100*part)
	}
}

// Prints the curves of SSD(40 MB/s), and checks the properties that make them curves of flash.
func TestCurves(t *testing.T) {
	m := SSD(SSDRate)
	depths := []int{1, 2, 4, 8, 16, 32}
	for _, op := range []Op{Read, Write} {
		for _, length := range []int64{4 << 10, 64 << 10, mib} {
			var line strings.Builder
			var curves []*load
			for _, d := range depths {
				l := curve(m, op, length, d)
				curves = append(curves, l)
				fmt.Fprintf(&line, "  %5.2f MB/s %6.1f ms", l.rate(curveSpan)/1e6, l.mean().Seconds()*1e3)
			}
			t.Logf("%c %7d bytes, depths %v:%s", op, length, depths, &line)
			for i, d := range depths {
				what := fmt.Sprintf("%c of %d bytes at depth %d", op, length, d)
				parts := int(max(1, length/partBytes))
				alone, knee := curves[0], max(1, m.Channels/min(parts, m.Channels))
				if d <= knee { // every request finds a channel
					within(t, what+": throughput", curves[i].rate(curveSpan), float64(d)*alone.rate(curveSpan), 0.01)
					within(t, what+": latency", curves[i].mean().Seconds(), alone.mean().Seconds(), 0.01)
				} else { // only the wait grows
					within(t, what+": throughput", curves[i].rate(curveSpan), float64(knee)*alone.rate(curveSpan), 0.02)
					within(t, what+": latency", curves[i].mean().Seconds(), float64(d)/float64(knee)*alone.mean().Seconds(), 0.02)
				}
			}
		}
	}
	rate := func(op Op, length int64, clients int) float64 { return curve(m, op, length, clients).rate(curveSpan) }
	if part := rate(Read, 4<<10, 1) / SSDRate; part > 0.1 {
		t.Errorf("one small read at a time gets %.2f of the rate, want a fraction", part)
	}
	if part := rate(Read, mib, 4) / SSDRate; part < 0.95 || part > 1 {
		t.Errorf("large reads get %.3f of the rate, want nearly all of it and no more", part)
	}
	if part := rate(Write, mib, 4) / float64(m.WriteBytesPerSecond); part < 0.94 || part > 1 {
		t.Errorf("large writes get %.3f of their rate, want nearly all of it and no more", part)
	}
	if ratio := rate(Write, mib, 4) / rate(Read, mib, 4); ratio < 0.55 || ratio > 0.68 {
		t.Errorf("writes get %.2f of what reads get, want about 5/8", ratio)
	}
}

// Writes slow down reads and take the disk's time from them. All of the time is accounted for.
func TestMixedLoad(t *testing.T) {
	m := SSD(SSDRate)
	alone := &load{op: Read, length: 64 << 10, clients: 4}
	closedLoop(m, curveSpan, alone)
	last := alone.mean()
	for _, writers := range []int{4, 8, 16} {
		reads := &load{op: Read, length: 64 << 10, clients: 4}
		writes := &load{op: Write, length: 64 << 10, clients: writers}
		busy := closedLoop(m, curveSpan, reads, writes)
		t.Logf("4 readers beside %2d writers of 64 KiB: reads %5.2f MB/s (alone %.2f), %v (alone %v); writes %5.2f MB/s, %v; busy %.3f", writers,
			reads.rate(curveSpan)/1e6, alone.rate(curveSpan)/1e6, reads.mean(), alone.mean(), writes.rate(curveSpan)/1e6, writes.mean(), busy)
		if reads.mean() < last {
			t.Errorf("reads take %v beside %d writers, less than %v beside fewer", reads.mean(), writers, last)
		}
		last = reads.mean()
		// A common budget, in units of the rate of each alone.
		parts := reads.rate(curveSpan)/curve(m, Read, 64<<10, 8).rate(curveSpan) + writes.rate(curveSpan)/curve(m, Write, 64<<10, 8).rate(curveSpan)
		within(t, fmt.Sprintf("4 readers beside %d writers: parts of the disk's time", writers), parts, 1, 0.02)
		if busy < 0.98 || busy > 1.001 {
			t.Errorf("4 readers beside %d writers: the disk was at work for %.3f of the time", writers, busy)
		}
	}
	if last < 3*alone.mean() {
		t.Errorf("16 writers slow down reads from %v to %v only", alone.mean(), last)
	}
}

func TestChannelsEdges(t *testing.T) {
	m := Model{BytesPerSecond: 8 << 20, Channels: 8, ReadLatency: time.Millisecond, WriteLatency: 3 * time.Millisecond}
	for _, c := range []struct {
		name   string
		op     Op
		length int64
		took   time.Duration
		parts  int64
	}{
		{"nothing", Read, 0, time.Millisecond, 1},
		{"a part", Read, partBytes, 63500 * time.Microsecond, 1},
		{"a byte more than a part", Read, partBytes + 1, 32250 * time.Microsecond, 2},
		{"as many parts as channels", Read, 8 * partBytes, 63500 * time.Microsecond, 8},
		{"no more parts than channels", Read, 16 * partBytes, 126 * time.Millisecond, 8},
		{"a write", Write, partBytes, 65500 * time.Microsecond, 1},
	} {
		ch, r := newChannels(m), &request{op: c.op, length: c.length}
		ch.submit(r)
		if got := time.Duration(r.ended); got < c.took || got > c.took+time.Microsecond {
			t.Errorf("%s took %v, want %v", c.name, got, c.took)
		}
		if got, want := r.service, c.parts*r.ended/8; got != want {
			t.Errorf("%s: service %d ns, want %d", c.name, got, want)
		}
	}
	m.WriteBytesPerSecond = 4 << 20
	ch, r := newChannels(m), &request{op: Write, length: partBytes}
	ch.submit(r)
	if got, want := time.Duration(r.ended), 128*time.Millisecond; got != want {
		t.Errorf("a write at half the rate took %v, want %v", got, want)
	}
	late := &request{op: Read, length: 0, arrived: int64(time.Hour)}
	ch.submit(late)
	if got := time.Duration(late.ended - late.arrived); got != time.Millisecond {
		t.Errorf("after an hour without requests one takes %v", got)
	}
}

// Requests may arrive at any time. They begin in order of arrival and not before their arrival. No
// channel is idle while a request waits, and the service adds up to the time in which the channels
// worked.
func TestChannelsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, ChannelsMax).Draw(t, "channels")
		m := Model{BytesPerSecond: rapid.Int64Range(4096, 1<<30).Draw(t, "rate"), Channels: n,
			ReadLatency:  time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "read latency ns")),
			WriteLatency: time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "write latency ns"))}
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		c := newChannels(m)
		var now, first, longest int64 // first: no request may begin before; longest: longest part so far, ns
		var u underway
		for i := range rapid.IntRange(1, 80).Draw(t, "requests") {
			now += rapid.Int64Range(0, 1e9).Draw(t, "after ns")
			r := &request{op: rapid.SampledFrom([]Op{Read, Write}).Draw(t, "op"), length: rapid.Int64Range(1, 4*mib).Draw(t, "length"), arrived: now}
			before := slices.Clone(c.free)
			c.submit(r)
			u.add(r)
			var worked int64 // ns of the channels' time that the request received
			for j, free := range c.free {
				worked += free - max(before[j], now)
				if free == before[j] {
					worked += max(0, now-free) // the channel was idle, and stayed idle
				}
			}
			if off := worked - r.service*int64(n); off < 0 || off >= int64(n) {
				t.Fatalf("request %d: %d ns of the channels' time, service %d ns of %d channels", i, worked, r.service, n)
			}
			parts := min((r.length+partBytes-1)/partBytes, int64(n))
			took := worked / parts
			longest = max(longest, took)
			if start := max(slices.Min(before), now); start < first {
				t.Fatalf("request %d begins at %d, before one that came earlier, at %d", i, start, first)
			} else if first = start; r.ended < start+took {
				t.Fatalf("request %d ended %d ns after it could begin and takes %d", i, r.ended-start, took)
			}
			// No channel is idle while a request waits (Graham's bound).
			left := worked
			for _, free := range before {
				left += max(0, free-now)
			}
			if limit := now + left/int64(n) + longest; r.ended > limit {
				t.Fatalf("request %d ended at %d, want %d at the latest", i, r.ended, limit)
			}
		}
		last := int64(0)
		for _, r := range u.take(slices.Max(c.free)) {
			if r.ended < last {
				t.Fatal("not taken in the order of their ends")
			}
			last = r.ended
		}
		if len(u) != 0 {
			t.Fatalf("%d requests never end", len(u))
		}
	})
}
