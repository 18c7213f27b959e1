package node

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"penstock/node/monitor/blockio"
	"penstock/node/monitor/owner"
	"penstock/node/orchestrators"
	"penstock/node/status"
)

const (
	// maxStatusUsers is the maximum number of foreign users of one device in the status.
	maxStatusUsers = 10
	// maxStatusLatencies is the maximum number of owners with latencies of one device in the status.
	maxStatusLatencies = 32
	// latencyEvery is the number of samples between two readings of latencies: a window must have
	// enough requests for its p99.
	latencyEvery = 5
)

// users finds the processes and cgroups that use the governed devices, according to the kernel.
// It helps an operator, and nothing else depends on it: each failure is logged once, and the
// devices' totals remain available.
type users struct {
	log    *slog.Logger
	open   func() (*blockio.Watch, error)
	number func(device string) (uint32, error)
	names  *orchestrators.Directory // nil: no containers of orchestrators are known

	mu      sync.Mutex
	on      bool
	mistake string // why the watch is not running
	ledger  blockio.Ledger
	numbers map[string]uint32 // of the watched devices

	samples   int
	latencies []blockio.Latency
	latencyAt time.Time
	seconds   float64 // length of the latencies' window; 0: they were read once
}

func newUsers(log *slog.Logger) *users {
	return &users{
		log: log, numbers: map[string]uint32{},
		open:   func() (*blockio.Watch, error) { return blockio.Open() },
		number: func(name string) (uint32, error) { return blockio.Number(sysfs, name) },
	}
}

// follow watches the devices returned by names until ctx ends. It begins when there is a device. It
// has its own goroutine, since nothing may wait for the loading of programs.
func (u *users) follow(ctx context.Context, names func() []string) {
	ticker := time.NewTicker(samplePeriod)
	defer ticker.Stop()
	var watch *blockio.Watch
	for {
		if devices := u.unwatched(names()); len(devices) > 0 && watch == nil {
			w, err := u.open()
			if err != nil {
				u.fail("foreign I/O is shown as totals only, not by process and cgroup, and there are no latencies by owner", err)
				return
			}
			defer w.Close()
			watch = w
		}
		if watch != nil {
			u.sample(watch, names())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// unwatched returns the numbers of those block devices among names that are not watched yet.
// Other devices, such as the network, have no number.
func (u *users) unwatched(names []string) map[string]uint32 {
	devices := map[string]uint32{}
	for _, name := range names {
		u.mu.Lock()
		_, known := u.numbers[name]
		u.mu.Unlock()
		if known {
			continue
		}
		if number, err := u.number(name); err == nil {
			devices[name] = number
		}
	}
	return devices
}

func (u *users) sample(watch *blockio.Watch, names []string) {
	for name, number := range u.unwatched(names) {
		if err := watch.Govern(number); err != nil { // not tried again
			u.log.Warn("foreign I/O is shown as totals only", "device", name, "error", err)
		}
		u.mu.Lock()
		u.numbers[name] = number
		u.mu.Unlock()
	}
	table, err := watch.Read()
	if err != nil {
		u.fail("cannot read foreign I/O by process and cgroup; its figures are not up to date", err)
		return
	}
	if err := u.sampleLatencies(watch); err != nil {
		u.fail("cannot read the latencies of devices; their figures are not up to date", err)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.on, u.mistake = true, ""
	u.ledger.Take(time.Now(), table)
}

// sampleLatencies reads the latencies of devices at each latencyEvery-th call.
func (u *users) sampleLatencies(watch *blockio.Watch) error {
	u.samples++
	if u.samples%latencyEvery != 1 {
		return nil
	}
	all, err := watch.Latencies()
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if !u.latencyAt.IsZero() {
		u.seconds = now.Sub(u.latencyAt).Seconds()
	}
	u.latencies, u.latencyAt = all, now
	return nil
}

// latenciesOf returns the latencies of a device's requests by owner: the owners with most requests in
// the window.
func (u *users) latenciesOf(name string) status.Latencies {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := status.Latencies{Seconds: u.seconds, Top: []status.OwnerLatency{}}
	number, watched := u.numbers[name]
	for i := range u.latencies {
		l := &u.latencies[i]
		switch {
		case !watched || l.Device != number:
		case len(out.Top) >= maxStatusLatencies:
			out.LeftOff++
		default:
			out.Top = append(out.Top, status.OwnerLatency{Owner: u.ownerOf(l.Group), Read: latencyOf(l.Total[0]), Write: latencyOf(l.Total[1]),
				Window: status.LatencyWindow{Read: latencyOf(l.Window[0]), Write: latencyOf(l.Window[1])}})
		}
	}
	return out
}

func (u *users) ownerOf(g blockio.Group) status.Owner {
	o := namedOwner(u.names, g.Owner)
	o.Short = cmp.Or(g.Name, o.Short)
	return o
}

func latencyOf(h blockio.Histogram) status.Latency {
	return status.Latency{Requests: h.Requests(), P50NS: int64(h.Quantile(0.5)), P95NS: int64(h.Quantile(0.95)), P99NS: int64(h.Quantile(0.99))}
}

// deviceLatencies calls take with the latencies of each owner on each watched device.
func (u *users) deviceLatencies(take func(device string, l *blockio.Latency)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	names := make(map[uint32]string, len(u.numbers))
	for name, number := range u.numbers {
		names[number] = name
	}
	for i := range u.latencies {
		if name := names[u.latencies[i].Device]; name != "" {
			take(name, &u.latencies[i])
		}
	}
}

// fail logs a failure once, however often it happens.
func (u *users) fail(what string, err error) {
	u.mu.Lock()
	before := u.mistake
	u.on, u.mistake = false, err.Error()
	u.mu.Unlock()
	if before != err.Error() {
		u.log.Warn(what, "error", err)
	}
}

// status returns the state of the watch itself.
func (u *users) status() status.ForeignWatch {
	u.mu.Lock()
	defer u.mu.Unlock()
	return status.ForeignWatch{On: u.on, Error: u.mistake}
}

// of returns the largest foreign users of a device, and separately the bytes that the daemon itself
// moved.
func (u *users) of(name string) status.ForeignUsers {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := status.ForeignUsers{Top: []status.ForeignUser{}}
	number, watched := u.numbers[name]
	if !watched {
		return out
	}
	s := u.ledger.Of(number, maxStatusUsers)
	out.Seconds, out.LeftOff, out.UnlistedBytes = s.Seconds, s.Left, s.Lost.Bytes
	out.Daemon = status.Pair{Read: s.Own[0], Written: s.Own[1]}
	for _, use := range s.Top {
		out.Top = append(out.Top, status.ForeignUser{
			Name: use.Name, PID: use.PID, Cgroup: use.Cgroup, Owner: namedOwner(u.names, owner.Of(use.Cgroup)), Bytes: status.Pair{Read: use.Bytes[0], Written: use.Bytes[1]},
			DeviceNS: int64(use.Time[0] + use.Time[1]), Window: status.Pair{Read: use.Window[0], Written: use.Window[1]},
		})
	}
	return out
}
