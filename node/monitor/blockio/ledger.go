package blockio

import (
	"cmp"
	"slices"
	"time"
)

// samples is the number of readings that a Ledger keeps. A window is the time between the first
// and the last.
const samples = 6

// Ledger keeps the last readings and returns the largest users of a device. The zero value is
// ready. It must not be used concurrently.
type Ledger struct {
	at   []time.Time
	past []map[key][2]int64 // bytes
	last Table
}

// Use is a user with its bytes in the window.
type Use struct {
	User
	Window [2]int64 // bytes; read, written
}

// Take adds a reading.
func (l *Ledger) Take(now time.Time, t Table) {
	bytes := make(map[key][2]int64, len(t.Users))
	for _, u := range t.Users {
		bytes[u.key] = u.Bytes
	}
	l.at, l.past, l.last = append(l.at, now), append(l.past, bytes), t
	if len(l.at) > samples {
		l.at, l.past = slices.Delete(l.at, 0, 1), slices.Delete(l.past, 0, 1)
	}
}

// Summary describes one device.
type Summary struct {
	Seconds float64  // length of the window; 0: one reading so far
	Top     []Use    // without this process; sorted by bytes in the window, the largest first
	Left    int      // number of further users
	Own     [2]int64 // bytes of this process; read, written
	Lost    Lost
}

// Of returns the users of the device, at most n. Users with equal bytes are sorted by name, so that
// their order is stable.
func (l *Ledger) Of(device uint32, n int) Summary {
	var s Summary
	if len(l.at) == 0 {
		return s
	}
	s.Seconds = l.at[len(l.at)-1].Sub(l.at[0]).Seconds()
	s.Lost = l.last.Lost[device]
	for _, u := range l.last.Users {
		switch {
		case u.Device != device || u.Bytes == [2]int64{}:
			continue
		case u.Own:
			s.Own[0] += u.Bytes[0]
			s.Own[1] += u.Bytes[1]
			continue
		}
		use := Use{User: u}
		old := l.past[0][u.key]
		for i := range old {
			if old[i] > u.Bytes[i] {
				old[i] = 0 // Watch has dropped the user, and its counts start again at 0
			}
			use.Window[i] = u.Bytes[i] - old[i]
		}
		s.Top = append(s.Top, use)
	}
	sum := func(b [2]int64) int64 { return b[0] + b[1] }
	slices.SortFunc(s.Top, func(a, b Use) int {
		return cmp.Or(cmp.Compare(sum(b.Window), sum(a.Window)), cmp.Compare(sum(b.Bytes), sum(a.Bytes)),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.PID, b.PID), cmp.Compare(a.key.cgroup, b.key.cgroup))
	})
	if len(s.Top) > n {
		s.Left, s.Top = len(s.Top)-n, s.Top[:n]
	}
	return s
}
