package disk

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const mib = 1 << 20

// testModel transfers 1 MiB in 100 ms and crosses the disk in 14 ms.
var testModel = Model{
	BytesPerSecond: 10 * mib,
	SeekMin:        2 * time.Millisecond,
	SeekMax:        14 * time.Millisecond,
	CapacityBytes:  1024 * mib,
}

func TestService(t *testing.T) {
	for _, c := range []struct {
		name                 string
		head, offset, length int64
		want                 time.Duration
	}{
		{"contiguous", 5 * mib, 5 * mib, mib, 100 * time.Millisecond},
		{"across the disk", 0, 1024 * mib, 0, 14 * time.Millisecond},
		{"and back", 1024 * mib, 0, 0, 14 * time.Millisecond},
		{"a quarter of it takes half as long", 512 * mib, 256 * mib, 0, 8 * time.Millisecond},
		{"to the track before", 4096, 0, 0, 2*time.Millisecond + time.Duration(12e6*math.Sqrt(4096./(1024*mib)))},
		{"a gap ahead passes under the head", 0, 10240, 0, testModel.transfer(Read, 10240)},
		{"beyond its capacity", 0, 4096 * mib, 0, 14 * time.Millisecond},
	} {
		if got := testModel.service(Read, c.head, c.offset, c.length); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := (Model{SeekMin: time.Second}).service(Read, 0, mib, mib); got != 0 {
		t.Errorf("the model is off and takes %v", got)
	}
}

func TestShortestSeekFirst(t *testing.T) {
	a := arm{model: testModel}
	for _, offset := range []int64{900, 100, 500, 101} {
		a.submit(&request{offset: offset * mib, length: mib})
	}
	var order []int64
	for now := int64(0); ; now = a.free {
		r := a.next(now)
		if r == nil {
			break
		}
		order = append(order, r.offset/mib)
	}
	want := []int64{100, 101, 500, 900}
	for i := range want {
		if i >= len(order) || order[i] != want[i] {
			t.Fatalf("served %v, want %v", order, want)
		}
	}
}

// Two sequential streams that are close to each other attract the head. A third request far away is
// still served.
func TestNobodyStarves(t *testing.T) {
	a := arm{model: testModel}
	far := &request{offset: 1000 * mib, length: mib}
	a.submit(far)
	near := map[Op]int64{Read: 0, Write: 50 * mib}
	for op, offset := range near {
		a.submit(&request{op: op, offset: offset, length: mib})
	}
	for now := int64(0); far.ended == 0; now = a.free {
		r := a.next(now)
		if r != far {
			near[r.op] += mib
			a.submit(&request{op: r.op, offset: near[r.op], length: mib, arrived: r.ended})
		}
		if now > int64(10*time.Second) {
			t.Fatal("the far request starves")
		}
	}
	// Beyond the age limit the request is next, after at most the request in service.
	waited := time.Duration(far.ended - far.arrived)
	if limit := DefaultAgeMax + 2*(100+14)*time.Millisecond; waited > limit {
		t.Errorf("the far request waited %v, want at most %v", waited, limit)
	}
	if waited < DefaultAgeMax {
		t.Errorf("the far request was served after %v, before its age, although others were nearer", waited)
	}
}

func TestLatenessCostsNoThroughputUpToABound(t *testing.T) {
	serve := func(late time.Duration) time.Duration {
		a := arm{model: testModel}
		for i := range 10 {
			a.submit(&request{offset: int64(i) * mib, length: mib})
		}
		for now := int64(0); ; now = a.free + int64(late) {
			if a.next(now) == nil {
				return time.Duration(a.free)
			}
		}
	}
	if got := serve(50 * time.Millisecond); got != time.Second {
		t.Errorf("10 MiB at 10 MiB/s, noticed 50 ms late each: %v, want 1s", got)
	}
	if got, want := serve(lateMax+time.Second), 10*time.Second; got != want {
		t.Errorf("held up for 1 s more than allowed, nine times: %v, want %v", got, want)
	}
}

// Requests may arrive at any time. The arm serves each request once, one at a time, and never
// before its arrival. It is never idle while a request waits, and serves a request beyond the age
// limit before all younger ones.
func TestArmProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := arm{model: testModel}
		a.model.AgeMax = 300 * time.Millisecond
		left := rapid.IntRange(1, 60).Draw(t, "requests")
		var waiting []*request
		var now, freed int64
		for left > 0 || len(waiting) > 0 {
			arriving := rapid.IntRange(0, min(left, 5)).Draw(t, "arriving")
			if len(waiting) == 0 && left > 0 {
				arriving = max(arriving, 1)
			}
			for range arriving {
				r := &request{
					offset:  rapid.Int64Range(0, 1000).Draw(t, "offset") * mib,
					length:  rapid.Int64Range(1, 256).Draw(t, "pages") * 4096,
					arrived: now + rapid.Int64Range(0, 1e8).Draw(t, "after ns"),
				}
				now = r.arrived
				a.submit(r)
				waiting = append(waiting, r)
			}
			left -= arriving
			now = max(now, a.free)
			oldest := waiting[0].arrived
			for _, r := range waiting {
				oldest = min(oldest, r.arrived)
			}
			r := a.next(now)
			start := r.ended - r.service
			switch {
			case start < freed:
				t.Fatalf("started at %d with the one before ending at %d", start, freed)
			case start < r.arrived:
				t.Fatalf("started %d ns before it arrived", r.arrived-start)
			case start > max(freed, oldest, now-int64(lateMax)):
				t.Fatalf("idle until %d with a request waiting since %d", start, oldest)
			}
			for i, w := range waiting {
				if w == r {
					waiting = append(waiting[:i], waiting[i+1:]...)
					break
				}
			}
			for _, w := range waiting {
				if start-w.arrived > int64(a.model.AgeMax) && w.arrived < r.arrived {
					t.Fatalf("a request that waited %d ns was passed over for a younger one", start-w.arrived)
				}
			}
			freed = r.ended
		}
		if len(a.waiting) != 0 {
			t.Fatalf("%d requests are left over", len(a.waiting))
		}
	})
}

// The control file may have any content. If it contains an accepted model, every request on 16 TiB
// ends after its arrival, and its service is not longer than its time at the disk.
func FuzzModel(f *testing.F) {
	for _, m := range []Model{{}, HDD(HDDRate), SSD(SSDRate), testModel} {
		text, err := json.Marshal(order{Model: &m})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, int64(5*mib), int64(mib), true)
	}
	f.Add([]byte(`{"model":{"bytes_per_second":4096,"channels":128,"write_latency_ns":1000000000}}`), int64(0), int64(1<<32-1), true)
	f.Add([]byte(`{"model":{"channels":-1}}`), int64(0), int64(1), false)
	f.Add([]byte(`{"model":{"bytes_per_second":1e400}}`), int64(0), int64(1), false)
	f.Fuzz(func(t *testing.T, text []byte, offset, length int64, write bool) {
		var o order
		if json.Unmarshal(text, &o) != nil || o.Model == nil || o.Model.Validate() != nil || o.Model.Off() {
			return
		}
		r := &request{op: Read, offset: offset & (1<<44 - 1), length: length & (1<<32 - 1), arrived: 1}
		if write {
			r.op = Write
		}
		if o.Model.Channels > 0 {
			c := newChannels(*o.Model)
			c.submit(r)
		} else {
			a := arm{model: *o.Model}
			a.submit(r)
			a.next(1)
		}
		if r.ended < r.arrived || r.service < 0 || r.service > r.ended-r.arrived {
			t.Errorf("%+v: a request of %d bytes takes from %d to %d, service %d", *o.Model, r.length, r.arrived, r.ended, r.service)
		}
	})
}
