package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"penstock/node/monitor/blockio"
	"penstock/node/status"
)

// maxStatusUsers bounds the foreign users of one device in the status.
const maxStatusUsers = 10

// users are who uses the governed devices, by the kernel's word. It is a help to
// an operator and nothing else depends on it: whatever fails here is said once, and
// the daemon goes on with the devices' totals.
type users struct {
	log    *slog.Logger
	open   func() (*blockio.Watch, error)
	number func(device string) (uint32, error)

	mu      sync.Mutex
	on      bool
	mistake string // why it is not on
	ledger  blockio.Ledger
	numbers map[string]uint32 // of the devices that are watched
}

func newUsers(log *slog.Logger) *users {
	return &users{
		log: log, numbers: map[string]uint32{},
		open:   func() (*blockio.Watch, error) { return blockio.Open() },
		number: func(name string) (uint32, error) { return blockio.Number(sysfs, name) },
	}
}

// follow watches the devices that names gives, from the first one on, until ctx ends.
// It has a goroutine of its own, as nothing may wait for the loading of programs.
func (u *users) follow(ctx context.Context, names func() []string) {
	ticker := time.NewTicker(samplePeriod)
	defer ticker.Stop()
	var watch *blockio.Watch
	for {
		if devices := u.unwatched(names()); len(devices) > 0 && watch == nil {
			w, err := u.open()
			if err != nil {
				u.fail("foreign I/O is shown as totals only, not by process and cgroup", err)
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

// unwatched gives the numbers of the block devices among names that are not
// watched. Others, such as the network, have none.
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
		u.fail("foreign I/O by process and cgroup is old", err)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.on, u.mistake = true, ""
	u.ledger.Take(time.Now(), table)
}

// fail says it once, however often it happens.
func (u *users) fail(what string, err error) {
	u.mu.Lock()
	before := u.mistake
	u.on, u.mistake = false, err.Error()
	u.mu.Unlock()
	if before != err.Error() {
		u.log.Warn(what, "error", err)
	}
}

// status is the watch's own state.
func (u *users) status() status.ForeignWatch {
	u.mu.Lock()
	defer u.mu.Unlock()
	return status.ForeignWatch{On: u.on, Error: u.mistake}
}

// of gives the largest users of a device beside the daemon.
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
			Name: use.Name, PID: use.PID, Cgroup: use.Cgroup, Bytes: status.Pair{Read: use.Bytes[0], Written: use.Bytes[1]},
			DeviceNS: int64(use.Time[0] + use.Time[1]), Window: status.Pair{Read: use.Window[0], Written: use.Window[1]},
		})
	}
	return out
}
