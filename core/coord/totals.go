package coord

import (
	"errors"
	"fmt"
)

// MaxRate is the largest rate that one member may report for all applications together. It is the
// rate of 256 devices, the maximum of a node's daemon.
const MaxRate = 256 * Second

// MaxNeed is the largest Had and the largest Weight that one member may report for a queue.
const MaxNeed = 100_000_000_000_000

// MaxStreams is the largest Streams that one member may report for an application: a million streams.
const MaxStreams = 1_000_000_000

// Second is one second of device time per second, in the unit of Service.
const Second = 1_000_000_000

// Service is the service that an application gets (Rate), and the service of the devices from which
// it could get more (Room).
type Service struct {
	Rate int64 // nanoseconds of device time per second
	// Room is the total rate of service, for all flows, of the devices where the application has a
	// backlog.
	Room int64
	// Had and Weight are used for queues only. Had is the part of the queue's total that its
	// backlogged members get, in billionths. Weight is these members' weight, in millionths.
	Had, Weight int64
	// Bytes and Hungry are used for applications only: the bytes per second that the application moves,
	// and the number of nodes, 0 or 1 in a report, on which it could move more (Demand).
	Bytes, Hungry int64
	// Streams, Waiting and Hindered are used for applications only, in thousandths of a stream: the mean number of open
	// streams, how many of them waited, and how many would not have waited alone (slowdown.Hindered).
	// Hindered <= Waiting <= Streams.
	Streams, Waiting, Hindered int64
	// Used is the service as measured in the last period (Rate is smoothed), and Touched the service of all
	// applications on the devices where the application has streams. Both are as Rate, and for applications only.
	Used, Touched int64
}

// App and Member are numbers of applications and members in a Totals.
type (
	App    int32
	Member int32
)

// The errors of Totals.
var (
	ErrTooManyMembers = errors.New("coord: too many nodes: the broker's limit is reached")
	ErrTooManyApps    = errors.New("coord: too many applications: the broker's limit is reached")
	ErrTooManyEntries = errors.New("coord: too many applications on one node")
	ErrUnknown        = errors.New("coord: no such node or application entry")
	ErrRate           = fmt.Errorf("coord: the reported rates exceed those of %d devices", MaxRate/Second)
)

// Totals adds up the reports of its members, which are nodes. Sums are integers, so a member that
// leaves takes exactly its own service out of them. An application is dropped when the last member
// that names it leaves.
type Totals struct {
	maxMembers, maxApps, maxEntries int
	maxRate                         int64 // of all entries of a member

	members     []member
	freeMembers []Member
	live        int
	apps        []app
	freeApps    []App
	byName      map[string]App
}

type member struct {
	joined  bool
	entries []entry // by the member's numbering
	rate    int64   // sum over entries
}

type entry struct {
	app  App // -1 if the entry is free
	last Service
}

type app struct {
	name    string
	members int32
	total   Service
}

// NewTotals returns empty totals with limits for members, applications, and entries of one member.
// Each limit must be at least 1.
func NewTotals(maxMembers, maxApps, maxEntries int) *Totals {
	return &Totals{maxMembers: maxMembers, maxApps: maxApps, maxEntries: maxEntries, maxRate: MaxRate, byName: map[string]App{}}
}

// NewQueueTotals returns empty totals of queues. A member may report the same service in as many
// entries as there are levels.
func NewQueueTotals(maxMembers, maxQueues, maxEntries, levels int) *Totals {
	t := NewTotals(maxMembers, maxQueues, maxEntries)
	t.maxRate = int64(levels) * MaxRate
	return t
}

// Members returns the number of members.
func (t *Totals) Members() int { return t.live }

// Apps returns the number of applications that at least one member has named.
func (t *Totals) Apps() int { return len(t.byName) }

// Join adds a member without entries. Errors: ErrTooManyMembers.
func (t *Totals) Join() (Member, error) {
	if t.live >= t.maxMembers {
		return 0, ErrTooManyMembers
	}
	t.live++
	if n := len(t.freeMembers); n > 0 {
		m := t.freeMembers[n-1]
		t.freeMembers = t.freeMembers[:n-1]
		t.members[m] = member{joined: true}
		return m, nil
	}
	t.members = append(t.members, member{joined: true})
	return Member(len(t.members) - 1), nil
}

// Leave removes a member and its service from the totals. Errors: ErrUnknown.
func (t *Totals) Leave(m Member) error {
	mb, err := t.member(m)
	if err != nil {
		return err
	}
	for i := range mb.entries {
		t.drop(mb, i)
	}
	*mb = member{}
	t.freeMembers = append(t.freeMembers, m)
	t.live--
	return nil
}

// Name sets the application of a member's entry i; "" frees the entry. Errors: ErrUnknown,
// ErrTooManyEntries and ErrTooManyApps. After an error the entry is unchanged.
func (t *Totals) Name(m Member, i int, name string) (App, error) {
	mb, err := t.member(m)
	if err != nil {
		return 0, err
	}
	if i < 0 || i >= t.maxEntries {
		return 0, ErrTooManyEntries
	}
	for i >= len(mb.entries) {
		mb.entries = append(mb.entries, entry{app: -1})
	}
	if name == "" {
		t.drop(mb, i)
		return -1, nil
	}
	a, known := t.byName[name]
	switch {
	case known && mb.entries[i].app == a:
		return a, nil
	case known:
	case len(t.byName) >= t.maxApps:
		return 0, ErrTooManyApps
	case len(t.freeApps) > 0:
		a = t.freeApps[len(t.freeApps)-1]
		t.freeApps = t.freeApps[:len(t.freeApps)-1]
	default:
		a = App(len(t.apps))
		t.apps = append(t.apps, app{})
	}
	if !known {
		t.apps[a] = app{name: name}
		t.byName[name] = a
	}
	t.apps[a].members++
	t.drop(mb, i)
	mb.entries[i].app = a
	return a, nil
}

// Report sets the service of a member's entry i. Errors: ErrUnknown, and ErrRate if a value is
// negative or above its maximum, or if the rates of all entries add up to more than the member's
// maximum. After an error the entry is unchanged.
func (t *Totals) Report(m Member, i int, s Service) error {
	mb, err := t.member(m)
	if err != nil {
		return err
	}
	if i < 0 || i >= len(mb.entries) || mb.entries[i].app < 0 {
		return ErrUnknown
	}
	e := &mb.entries[i]
	if s.Had < 0 || s.Had > MaxNeed || s.Weight < 0 || s.Weight > MaxNeed || s.Rate < 0 || s.Room < 0 || s.Room > MaxRate || s.Rate > MaxRate || s.Rate > t.maxRate-(mb.rate-e.last.Rate) ||
		s.Bytes < 0 || s.Bytes > MaxBytesRate || s.Hungry < 0 || s.Hungry > 1 ||
		s.Hindered < 0 || s.Waiting < s.Hindered || s.Streams < s.Waiting || s.Streams > MaxStreams ||
		s.Used < 0 || s.Touched < s.Used || s.Touched > MaxRate {
		return ErrRate
	}
	t.apps[e.app].total.replace(e.last, s)
	mb.rate += s.Rate - e.last.Rate
	e.last = s
	return nil
}

// replace replaces a part of the sum.
func (s *Service) replace(old, part Service) {
	s.Rate += part.Rate - old.Rate
	s.Room += part.Room - old.Room
	s.Had += part.Had - old.Had
	s.Weight += part.Weight - old.Weight
	s.Bytes += part.Bytes - old.Bytes
	s.Hungry += part.Hungry - old.Hungry
	s.Streams += part.Streams - old.Streams
	s.Waiting += part.Waiting - old.Waiting
	s.Hindered += part.Hindered - old.Hindered
	s.Used += part.Used - old.Used
	s.Touched += part.Touched - old.Touched
}

// Reported returns what a member last reported for its entry i.
func (t *Totals) Reported(m Member, i int) Service {
	mb, err := t.member(m)
	if err != nil || i < 0 || i >= len(mb.entries) {
		return Service{}
	}
	return mb.entries[i].last
}

// Entry returns the application of a member's entry i, its name and its total.
func (t *Totals) Entry(m Member, i int) (a App, name string, total Service, ok bool) {
	mb, err := t.member(m)
	if err != nil || i < 0 || i >= len(mb.entries) || mb.entries[i].app < 0 {
		return -1, "", Service{}, false
	}
	a = mb.entries[i].app
	return a, t.apps[a].name, t.apps[a].total, true
}

// Entries returns the number of entries that a member has used, including free ones.
func (t *Totals) Entries(m Member) int {
	mb, err := t.member(m)
	if err != nil {
		return 0
	}
	return len(mb.entries)
}

// Rate returns the rate of service that a member has reported, over all entries.
func (t *Totals) Rate(m Member) int64 {
	mb, err := t.member(m)
	if err != nil {
		return 0
	}
	return mb.rate
}

// Of returns the total of an application by its name.
func (t *Totals) Of(name string) (Service, bool) {
	a, ok := t.byName[name]
	if !ok {
		return Service{}, false
	}
	return t.apps[a].total, true
}

// Each calls f for every application, in the order of the applications' numbers.
func (t *Totals) Each(f func(a App, name string, members int, total Service)) {
	for i := range t.apps {
		if ap := &t.apps[i]; ap.members > 0 {
			f(App(i), ap.name, int(ap.members), ap.total)
		}
	}
}

func (t *Totals) member(m Member) (*member, error) {
	if m < 0 || int(m) >= len(t.members) || !t.members[m].joined {
		return nil, ErrUnknown
	}
	return &t.members[m], nil
}

// drop frees an entry of a member.
func (t *Totals) drop(mb *member, i int) {
	e := &mb.entries[i]
	if e.app < 0 {
		return
	}
	ap := &t.apps[e.app]
	ap.total.replace(e.last, Service{})
	mb.rate -= e.last.Rate
	if ap.members--; ap.members == 0 {
		delete(t.byName, ap.name)
		*ap = app{}
		t.freeApps = append(t.freeApps, e.app)
	}
	*e = entry{app: -1}
}
