package coordination

import (
	"slices"
	"time"

	"penstock/core/coord"
	"penstock/wire/cluster"
)

// report says what the node's devices have done since the last one.
func (c *Client) report(sequence uint64) *cluster.Report {
	r := &cluster.Report{Sequence: sequence}
	for _, e := range c.entries {
		e.sum = coord.Service{}
		e.unseen++
	}
	c.reports++
	leftOut := 0
	there := map[string]bool{}
	devices := c.o.Devices()
	for _, l := range c.look(devices) {
		leftOut = max(leftOut, c.reportDevice(sequence, l))
	}
	for _, d := range devices {
		there[d.Name()] = true
	}
	for name := range c.devices {
		if !there[name] {
			delete(c.devices, name)
		}
	}
	for name := range c.looks {
		if !there[name] {
			delete(c.looks, name)
		}
	}
	for _, e := range slices.SortedFunc(valuesOf(c.entries), func(a, b *entry) int { return int(a.number) - int(b.number) }) {
		switch {
		case e.unseen > forget:
			if e.named {
				r.Names = append(r.Names, &cluster.Name{Entry: e.number})
			}
			delete(c.entries, e.name)
			c.rights.used(e.name)
			c.byNumber[e.number] = nil
			c.freed = append(c.freed, freed{e.number, c.reports})
			for _, t := range c.devices {
				t.coord.Drop(int(e.number))
			}
			continue
		case !e.named:
			r.Names = append(r.Names, &cluster.Name{Entry: e.number, Application: e.name})
			e.named = true
		}
		if e.sum != e.sent {
			r.Entries = append(r.Entries, e.number)
			r.Rates = append(r.Rates, uint64(e.sum.Rate))
			r.Rooms = append(r.Rooms, uint64(e.sum.Room))
			e.sent = e.sum
		}
	}
	c.mu.Lock()
	c.state.Entries, c.state.LeftOut = len(c.entries), leftOut
	r.Policy = c.state.Policy
	c.mu.Unlock()
	return r
}

// look is a question to a device for its accounts.
type look struct {
	device Device
	done   chan struct{}
	// Once it is done:
	uses []Use
	ok   bool
	at   time.Time
}

// look asks all devices at once, and gives the answers that are there within half a period. Who
// has not answered by then is not waited for again, nor asked anew, until he has: a disk that
// hangs must not keep the others' reports, nor the broker's answers.
func (c *Client) look(devices []Device) (answered []*look) {
	late := time.NewTimer(c.o.Period / 2)
	defer late.Stop()
	var all, awaited []*look
	for _, d := range devices {
		l := c.looks[d.Name()]
		if l == nil || l.device != d {
			l = &look{device: d, done: make(chan struct{})}
			c.looks[d.Name()] = l
			go func() {
				defer close(l.done)
				l.uses, l.ok = d.Uses()
				l.at = time.Now()
			}()
			awaited = append(awaited, l)
		}
		all = append(all, l)
	}
wait:
	for _, l := range awaited {
		select {
		case <-l.done:
		case <-late.C:
			break wait
		}
	}
	for _, l := range all {
		select {
		case <-l.done:
			delete(c.looks, l.device.Name())
			if l.ok {
				answered = append(answered, l)
			}
		default:
		}
	}
	return answered
}

func valuesOf(m map[string]*entry) func(func(*entry) bool) {
	return func(yield func(*entry) bool) {
		for _, e := range m {
			if !yield(e) {
				return
			}
		}
	}
}

// reportDevice adds one device's services to the entries'. The first look at a device, and
// the first of a stream, only says where its accounts stand.
func (c *Client) reportDevice(sequence uint64, l *look) (leftOut int) {
	d, uses, now := l.device, l.uses, l.at
	t := c.devices[d.Name()]
	if t == nil || t.device != d {
		t = &tracked{device: d}
		c.devices[d.Name()] = t
	}
	first, length := t.at.IsZero(), now.Sub(t.at)
	before := t.before
	t.at, t.before = now, make(map[string]Use, len(uses))
	for _, u := range uses {
		t.before[u.Flow] = u
	}
	if first || length <= 0 {
		return 0
	}
	var done []coord.Use
	var entries []*entry
	for _, u := range uses {
		// A flow that was forgotten and is back has begun anew.
		if was := before[u.Flow]; was.Service <= u.Service && was.Wanted <= u.Wanted {
			u.Service, u.Wanted = u.Service-was.Service, u.Wanted-was.Wanted
		}
		e := c.entries[u.Flow]
		if u.Service > 0 || u.Wanted > 0 {
			if e == nil {
				e = c.enter(u.Flow)
			}
			if e == nil {
				leftOut++
				continue
			}
			e.unseen = 0
		}
		if e != nil {
			done = append(done, coord.Use{App: int(e.number), Served: u.Service, Wanted: u.Wanted})
			entries = append(entries, e)
		}
	}
	for i, s := range t.coord.Report(sequence, length, done) {
		entries[i].sum.Rate += s.Rate
		entries[i].sum.Room += s.Room
	}
	return leftOut
}

// enter makes a flow's entry; nil where the bound is reached or its name is too long.
func (c *Client) enter(flow string) *entry {
	if flow == "" || len(flow) > cluster.MaxName {
		return nil
	}
	e := &entry{name: flow}
	switch {
	case len(c.freed) > 0 && c.reports-c.freed[0].since > forget:
		e.number = c.freed[0].number
		c.freed = c.freed[1:]
		c.byNumber[e.number] = e
	case len(c.byNumber) < cluster.MaxEntries:
		e.number = uint32(len(c.byNumber))
		c.byNumber = append(c.byNumber, e)
	default:
		return nil
	}
	c.entries[flow] = e
	return e
}
