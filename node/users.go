package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"penstock/node/monitor/blockio"
	"penstock/node/monitor/owner"
	"penstock/node/status"
)

// maxStatusUsers is the maximum number of foreign users of one device in the status.
const maxStatusUsers = 10

// users finds the processes and cgroups that use the governed devices, according to the kernel.
// It helps an operator, and nothing else depends on it: each failure is logged once, and the
// devices' totals remain available.
type users struct {
	log    *slog.Logger
	open   func() (*blockio.Watch, error)
	number func(device string) (uint32, error)

	mu      sync.Mutex
	on      bool
	mistake string // why the watch is not running
	ledger  blockio.Ledger
	numbers map[string]uint32 // of the watched devices
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
	u.mu.Lock()
	defer u.mu.Unlock()
	u.on, u.mistake = true, ""
	u.ledger.Take(time.Now(), table)
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
			Name: use.Name, PID: use.PID, Cgroup: use.Cgroup, Owner: statusOwner(owner.Of(use.Cgroup)), Bytes: status.Pair{Read: use.Bytes[0], Written: use.Bytes[1]},
			DeviceNS: int64(use.Time[0] + use.Time[1]), Window: status.Pair{Read: use.Window[0], Written: use.Window[1]},
		})
	}
	return out
}

func statusOwner(o owner.Owner) status.Owner {
	return status.Owner{Kind: string(o.Kind), ID: o.ID, Application: o.Application, Pod: o.Pod, Delegated: o.Delegated, Short: o.String()}
}
