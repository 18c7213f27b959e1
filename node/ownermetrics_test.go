package node

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"pgregory.net/rapid"

	"penstock/node/monitor/blockio"
	"penstock/node/monitor/owner"
	"penstock/wire"
)

func seriesOf(b *boundedCounters) map[string]float64 {
	found := map[string]float64{}
	b.each(func(name string, f []float64) { found[name] = f[0] })
	return found
}

func TestOwnerSeriesAreBounded(t *testing.T) {
	b := newBoundedCounters(2)
	figures := func(pairs ...any) map[string][]float64 {
		m := map[string][]float64{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i].(string)] = []float64{float64(pairs[i+1].(int))}
		}
		return m
	}
	for step, s := range []struct {
		now  map[string][]float64
		want string
	}{
		{figures("a", 5, "b", 7), "map[a:5 b:7]"}, // at the bound
		{figures("a", 6, "b", 7, "c", 10, "d", 1), "map[a:6 b:7 others:11]"},
		{figures("b", 8, "c", 11, "d", 1), "map[b:8 others:12]"},             // a is gone, what others did stays
		{figures("b", 8, "c", 12, "d", 1, "e", 3), "map[b:8 e:3 others:13]"}, // c does not move
		{figures("b", 2, "c", 1, "e", 3), "map[b:10 e:3 others:14]"},         // forgotten and begun again
		{figures("b", 2, "c", 1, "e", 3, "others", 4), "map[b:10 e:3 others:18]"},
	} {
		b.take(s.now)
		if got := fmt.Sprint(seriesOf(b)); got != s.want {
			t.Errorf("step %d: %s, want %s", step, got, s.want)
		}
	}
}

// No series decreases while its owner is there, no byte is lost, and the bound holds.
func TestOwnerSeriesAreComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const bound = 3
		b := newBoundedCounters(bound)
		now, did, last := map[string][]float64{}, 0.0, map[string]float64{}
		gone := 0.0 // of series that have ended
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			for owner := range 8 {
				name := strconv.Itoa(owner)
				switch more := rapid.IntRange(-1, 5).Draw(t, "more"); {
				case more < 0:
					if s := b.series[name]; s != nil && s.own {
						gone += s.total[0]
					}
					delete(now, name)
				default:
					old := 0.0
					if f := now[name]; f != nil {
						old = f[0]
					}
					now[name] = []float64{old + float64(more)}
					did += float64(more)
				}
			}
			b.take(now)
			sum, found := gone, seriesOf(b)
			for name, v := range found {
				if _, is := now[name]; (is || name == otherOwners) && last[name] > v && b.series[name] != nil {
					t.Fatalf("%s: %v after %v", name, v, last[name])
				}
				sum += v
			}
			if sum != did || len(found) > bound+1 {
				t.Fatalf("%d series with %v of %v", len(found), sum, did)
			}
			last = found
			for name := range last {
				if _, is := now[name]; !is && name != otherOwners {
					delete(last, name)
				}
			}
		}
	})
}

func TestBoundedGauges(t *testing.T) {
	all := map[string]int{"": 4, "a": 3, "b": 2, "c": 1, "d": 1}
	if got := fmt.Sprint(boundedGauges(all, 5)); got != "map[a:3 b:2 c:1 d:1 none:4]" {
		t.Error(got)
	}
	if got := fmt.Sprint(boundedGauges(all, 3)); got != "map[a:3 b:2 none:4 others:2]" {
		t.Error(got)
	}
}

func TestLatencyHistogram(t *testing.T) {
	row := make([]float64, blockio.Buckets+1)
	row[0], row[8], row[9], row[blockio.Buckets-1], row[blockio.Buckets] = 1, 2, 4, 8, 40
	var m dto.Metric
	if err := latencyHistogram(row, "sda", "x", "read").Write(&m); err != nil {
		t.Fatal(err)
	}
	h := m.GetHistogram()
	var text []string
	for _, b := range h.GetBucket()[:3] {
		text = append(text, fmt.Sprint(b.GetUpperBound(), " ", b.GetCumulativeCount()))
	}
	if !slices.Equal(text, []string{"8.192e-06 1", "3.2768e-05 3", "0.000131072 7"}) || len(h.GetBucket()) != 11 ||
		h.GetBucket()[10].GetCumulativeCount() != 7 || h.GetSampleCount() != 15 || h.GetSampleSum() != 40 {
		t.Errorf("%v; %v", text, h)
	}
}

// A name that a user has chosen is no application.
func TestOwnerLabel(t *testing.T) {
	const container = "container_1700000000000_0001_01_000002"
	for path, want := range map[string]string{
		"/hadoop-yarn/" + container:                            app,
		"/user.slice/user-1.slice/user@1.service/" + container: app + " 000002 (name not verified)",
		"/system.slice/fio.service":                            "fio.service",
	} {
		if got := ownerLabel(nil, "", owner.Of(path)); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := ownerLabel(nil, "flow", owner.Of("/hadoop-yarn/"+container)); got != "flow" {
		t.Error(got)
	}
}

// The daemon's own requests show in the status and in the metrics with their latencies. If the kernel or
// the test's rights do not allow this, the status says so.
func TestLatenciesByOwner(t *testing.T) {
	r := start(t, "enforce")
	block := filepath.Join(r.dir, "blk_1")
	r.put(block, strings.Repeat("x", 4<<20))
	r.send(wire.Open{Stream: 1, Direction: wire.Write, Flow: "a", Path: block})
	r.until("the device", func() bool { return len(r.status().Devices) == 1 })
	if !r.status().Devices[0].Kernel.Counted {
		return // in memory
	}
	r.until("the watch", func() bool { s := r.status().ForeignWatch; return s.On || s.Error != "" })
	if s := r.status().ForeignWatch; !s.On {
		if len(r.status().Devices[0].Latencies.Top) != 0 {
			t.Error("latencies without a watch")
		}
		t.Log(s.Error)
		return
	}
	r.send(wire.Progress{Stream: 1, Position: 4 << 20})
	r.send(wire.Close{Stream: 1, Position: 4 << 20})
	// With low dirty limits, the kernel may write a file before the daemon does. So there are more files.
	stream := uint32(1)
	r.until("the daemon's latencies", func() bool {
		if stream++; stream < 200 {
			path := fmt.Sprint(block, stream)
			r.put(path, strings.Repeat("x", 1<<20))
			r.send(wire.Open{Stream: stream, Direction: wire.Write, Flow: "a", Path: path})
			r.send(wire.Progress{Stream: stream, Position: 1 << 20})
			r.send(wire.Close{Stream: stream, Position: 1 << 20})
		}
		for _, l := range r.status().Devices[0].Latencies.Top {
			if l.Owner.Short == blockio.Daemon && l.Owner.Kind == "" && l.Write.Requests > 0 {
				if w := l.Write; w.P50NS <= 0 || w.P50NS > w.P95NS || w.P95NS > w.P99NS {
					t.Errorf("%+v", w)
				}
				return true
			}
		}
		return false
	})
	labels := fmt.Sprintf(`{device=%q,direction="write",owner=%q}`, r.deviceName(), blockio.Daemon)
	if n, err := strconv.ParseFloat(r.metric("penstock_owner_latency_seconds_count"+labels), 64); err != nil || n < 1 {
		t.Errorf("%v requests in the metrics, %v", n, err)
	}
}
