package disk

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const curveFile = 256 * mib

// curveOn starts a disk with a file for random requests.
func curveOn(t testing.TB, model Model) (*Disk, *os.File, bool) {
	t.Helper()
	d, ok := modelled(t, Options{Name: "curves", Size: 2 * curveFile, Scheduler: "none"})
	if !ok {
		return d, nil, false
	}
	file := openDirect(t, filepath.Join(d.Mount(), "file"))
	for offset := int64(0); offset < curveFile; offset += 4 * mib {
		if _, err := file.WriteAt(aligned(4*mib), offset); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.SetModel(model); err != nil {
		t.Fatal(err)
	}
	return d, file, true
}

// ask keeps a number of random requests in flight for a time and returns the throughput and
// latency.
func ask(t testing.TB, file *os.File, op Op, length int64, depth int, span time.Duration) (bytesPerSecond float64, latency time.Duration) {
	var clients sync.WaitGroup
	var mu sync.Mutex
	var bytes, requests int64
	begin := time.Now()
	for client := range depth {
		random := rand.New(rand.NewPCG(uint64(length), uint64(client)))
		clients.Go(func() {
			buffer := aligned(int(length))
			for time.Since(begin) < span {
				offset, asked := random.Int64N(curveFile/length)*length, time.Now()
				var err error
				if op == Read {
					_, err = file.ReadAt(buffer, offset)
				} else {
					_, err = file.WriteAt(buffer, offset)
				}
				mu.Lock()
				if err != nil {
					t.Error(err)
				}
				bytes += length
				requests++
				latency += time.Since(asked)
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	return float64(bytes) / time.Since(begin).Seconds(), latency / time.Duration(requests)
}

// BenchmarkCurves measures throughput and mean latency for different numbers of requests in flight.
// The results are in the table in docs/design/disk.md. With -benchtime 1x it takes two minutes.
func BenchmarkCurves(b *testing.B) {
	for _, kind := range []struct {
		name  string
		model Model
	}{{"hdd", HDD(HDDRate)}, {"ssd", SSD(SSDRate)}} {
		_, file, ok := curveOn(b, kind.model)
		if !ok {
			b.Fatal(Available())
		}
		for _, op := range []Op{Read, Write} {
			for _, length := range []int64{4 << 10, 64 << 10, mib} {
				for depth := 1; depth <= 32; depth *= 2 {
					b.Run(fmt.Sprintf("%s/%c/%dKiB/depth-%d", kind.name, op, length>>10, depth), func(b *testing.B) {
						for b.Loop() {
							span := max(time.Second, 2*time.Duration(depth)*kind.model.transfer(op, length))
							rate, latency := ask(b, file, op, length, depth, span)
							b.ReportMetric(0, "ns/op")
							b.ReportMetric(rate/1e6, "MB/s")
							b.ReportMetric(latency.Seconds()*1e3, "ms")
						}
					})
				}
			}
		}
	}
}

// The modelled disk behaves like the model of its channels: it is never faster, and serves as many
// requests in parallel as there are channels.
func TestSolidStateDisk(t *testing.T) {
	m := Model{BytesPerSecond: 40e6, WriteBytesPerSecond: 25e6, Channels: 4, ReadLatency: 10 * time.Millisecond, WriteLatency: 20 * time.Millisecond}
	d, file, ok := curveOn(t, m)
	if !ok {
		return
	}
	from := Monotonic()
	const span = 500 * time.Millisecond
	rates := map[Op]map[int]float64{}
	for _, op := range []Op{Read, Write} {
		rates[op] = map[int]float64{}
		for _, depth := range []int{1, 4, 8} {
			r := &request{op: op, length: 4096}
			one := newChannels(m)
			one.submit(r)
			rate, latency := ask(t, file, op, 4096, depth, span)
			rates[op][depth] = rate
			t.Logf("%c at depth %d: %.0f bytes/s, %v", op, depth, rate, latency)
			if most := float64(min(depth, m.Channels)) * 4096 / time.Duration(r.ended).Seconds(); rate > 1.001*most {
				t.Errorf("%c at depth %d: %.0f bytes/s, the model allows %.0f", op, depth, rate, most)
			}
			if latency < time.Duration(r.ended) {
				t.Errorf("%c at depth %d: a request takes %v, by the model at least %v", op, depth, latency, time.Duration(r.ended))
			}
		}
		// How close the ratio comes to 4 depends on the machine.
		if rates[op][4] < 2*rates[op][1] {
			t.Errorf("%c: 4 requests in flight get %.0f bytes/s, one gets %.0f: they are not served side by side", op, rates[op][4], rates[op][1])
		}
	}
	if rates[Write][1] > rates[Read][1] {
		t.Errorf("writes get %.0f bytes/s, reads %.0f", rates[Write][1], rates[Read][1])
	}
	if err := d.SyncLog(); err != nil {
		t.Fatal(err)
	}
	_, records, err := ReadLog(d.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	var service, last int64
	for _, r := range records {
		if r.Submitted < from || r.Op == Discard {
			continue
		}
		service += r.Service
		last = max(last, r.Ended)
	}
	if service <= 0 || service > last-from {
		t.Errorf("a service of %v in %v", time.Duration(service), time.Duration(last-from))
	}
}
