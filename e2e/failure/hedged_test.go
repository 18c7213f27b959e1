package failure

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/client"
	"penstock/lab/disk"
)

// stuck is a disk on which each read takes a second.
var stuck = disk.Model{BytesPerSecond: 40e6, SeekMin: time.Second, SeekMax: time.Second}

// probe is a client that reads at random places.
type probe struct {
	id int

	mu    sync.Mutex
	reads []time.Duration
	wrong []string
}

// hedged starts a client that asks a second DataNode if the first one does not answer in 100 ms.
func hedged(t *testing.T, f transfer) *probe {
	t.Helper()
	p := &probe{}
	p.id = shared.Clients.Do("probe-read", fmt.Sprintf("path=%s attempt=%s bytes=%d length=%d seed=%d every=100 hedged=100", f.path, f.app.attempt(), 64*1024, f.bytes, f.seed),
		func(event, value string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			switch event {
			case "read":
				_, took, err := client.Timed(value)
				if err != nil {
					p.wrong = append(p.wrong, err.Error())
				}
				p.reads = append(p.reads, took)
			case "trouble", "error":
				p.wrong = append(p.wrong, value)
			}
		})
	t.Cleanup(func() { p.end(t) })
	return p
}

func (p *probe) end(t *testing.T) {
	t.Helper()
	shared.Clients.Limit(p.id, 0)
	shared.Clients.Forget(p.id)
}

// after waits for n more reads, and returns their durations. Reads that began before are left out.
func (p *probe) after(t *testing.T, n int) []time.Duration {
	t.Helper()
	p.mu.Lock()
	from := len(p.reads) + 1
	p.mu.Unlock()
	fixture.Eventually(t, fmt.Sprintf("%d reads", n), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.reads) >= from+n
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.wrong {
		t.Errorf("a read has failed: %s", w)
	}
	return p.reads[from:]
}

// TestHedgedReads: a disk takes a second for each read, so a client reads the same bytes from the other DataNode. Streams
// that the client gives up do not stay, natively and under Penstock.
func TestHedgedReads(t *testing.T) {
	dir := begin(t)
	f := transfer{app: newApplication(), path: dir + "/read", bytes: 32 * fixture.MiB, seed: 18, replication: 2}
	put(t, f).endIntact(t, f)
	replicated(t, f)
	for _, way := range []string{"natively", "under Penstock"} {
		var d *daemon
		if way != "natively" {
			d = startGoverning(t)
		}
		fixture.Must(t, shared.Forget())
		f.app = newApplication()
		p := hedged(t, f)
		p.after(t, 5)
		first := busier(t, p)
		fixture.Must(t, shared.SetModel(stuck, shared.Disks[first]))
		durations := p.after(t, 20)
		longest := time.Duration(0)
		for _, r := range durations {
			longest = max(longest, r)
		}
		t.Logf("%s: 20 reads beside disk %d, on which a read takes %v: at most %v", way, first, stuck.SeekMin, longest)
		if longest >= stuck.SeekMin {
			t.Errorf("%s: a read took %v, as long as on the stuck disk", way, longest)
		}
		p.end(t)
		setModel(t, usual)
		if d == nil {
			continue
		}
		d.awaitMetric(t, atLeast(1), "flow_bytes_total", flow(f.app), reads, onDevice(1-first))
		d.awaitMetric(t, is(0), "flow_streams")
		if n := d.metric(t, "flow_bytes_total", `flow="unattributed"`); n > 0 {
			t.Errorf("%.0f bytes are unattributed", n)
		}
		d.checkHealthy(t)
	}
}

// busier returns the disk that a client's reads use.
func busier(t *testing.T, p *probe) int {
	t.Helper()
	var before, moved [nodes]int64
	count := func(into *[nodes]int64) {
		for i := range into {
			read, _, err := shared.Disks[i].Counters()
			fixture.Must(t, err)
			into[i] = read
		}
	}
	count(&before)
	p.after(t, 10)
	count(&moved)
	if moved[0]-before[0] > moved[1]-before[1] {
		return 0
	}
	return 1
}

// TestManyClientsStall: 200 clients open a block and stop at once. They hold no slot of the device, and one more client
// has the disk to itself, natively and under Penstock.
func TestManyClientsStall(t *testing.T) {
	const clients = 200
	dir := begin(t)
	f := transfer{app: newApplication(), path: dir + "/read", bytes: 8 * fixture.MiB, seed: 19}
	put(t, f).endIntact(t, f)
	jvm := shared.StartClients(t, client.Options{Temp: t.TempDir(), Log: shared.Path("stalling.log"), Heap: "1g"})
	for _, way := range []string{"natively", "under Penstock"} {
		var d *daemon
		if way != "natively" {
			d = startGoverning(t)
		}
		var mu sync.Mutex
		stopped, ended := 0, 0
		var wrong []string
		var ids []int
		for range clients {
			app := newApplication()
			ids = append(ids, jvm.Do("get", fmt.Sprintf("path=%s attempt=%s bytes=%d seed=%d limit=%d", f.path, app.attempt(), f.bytes, f.seed, fixture.MiB),
				func(event, value string) {
					mu.Lock()
					defer mu.Unlock()
					switch event {
					case "reached":
						stopped++
					case "done":
						ended++
						if want := client.Sum(f.seed, f.bytes); value != want {
							wrong = append(wrong, "another checksum: "+value)
						}
					case "error":
						ended++
						wrong = append(wrong, value)
					}
				}))
		}
		fixture.Eventually(t, "all clients have stopped", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return stopped+ended >= clients
		})
		if d != nil {
			d.awaitMetric(t, is(0), "device_outstanding", onDevice(0))
		}
		fixture.Must(t, shared.Forget())
		f.app = newApplication()
		begin := time.Now()
		get(t, f).endIntact(t, f)
		t.Logf("%s: beside %d clients that stall, %d MiB took %v", way, clients, f.bytes/fixture.MiB, time.Since(begin))
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("%s: %v beside clients that stall", way, took)
		}
		for _, id := range ids {
			jvm.Limit(id, -1)
		}
		fixture.Eventually(t, "all clients have ended", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return ended >= clients
		})
		mu.Lock()
		for _, w := range wrong {
			t.Errorf("%s: a client that stalled: %s", way, w)
		}
		mu.Unlock()
		for _, id := range ids {
			jvm.Forget(id)
		}
		if d != nil {
			d.awaitMetric(t, is(0), "flow_streams")
			d.checkHealthy(t)
		}
	}
}
