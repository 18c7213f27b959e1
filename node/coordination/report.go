package coordination

import (
	"maps"
	"time"

	"penstock/core/coord"
	"penstock/wire/cluster"
)

// report returns the service of the node's devices since the last report.
func (c *Client) report(sequence uint64) *cluster.Report {
	r := &cluster.Report{Sequence: sequence}
	c.apps.begin()
	c.queues.begin()
	c.reports++
	leftOut := 0
	there := map[string]bool{}
	devices := c.o.Devices()
	for _, l := range c.look(devices) {
		leftOut = max(leftOut, c.reportDevice(sequence, l))
	}
	c.divideTotals()
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
	r.Capacity = c.capacity()
	if c.o.Mode != nil {
		r.Mode = wireMode(c.o.Mode())
	}
	for _, e := range c.apps.inOrder() {
		if e.unseen > forget {
			if e.named {
				r.Names = append(r.Names, &cluster.Name{Entry: e.number})
			}
			c.rights.used(e.name)
			c.free(&c.apps, e, int(e.number))
			continue
		}
		if !e.named {
			r.Names = append(r.Names, &cluster.Name{Entry: e.number, Application: e.name})
			e.named = true
		}
		if e.sum != e.sent {
			r.Entries, r.Rates, r.Rooms = append(r.Entries, e.number), append(r.Rates, uint64(e.sum.Rate)), append(r.Rooms, uint64(e.sum.Room))
			r.Bytes, r.Hungry = append(r.Bytes, uint64(e.sum.Bytes)), append(r.Hungry, e.sum.Hungry > 0)
			r.Streams, r.Waiting, r.Hindered = append(r.Streams, uint64(e.sum.Streams)), append(r.Waiting, uint64(e.sum.Waiting)), append(r.Hindered, uint64(e.sum.Hindered))
			r.Used, r.Touched = append(r.Used, uint64(e.sum.Used)), append(r.Touched, uint64(e.sum.Touched))
			e.sent = e.sum
		}
	}
	q := &cluster.Queues{}
	for _, e := range c.queues.inOrder() {
		if e.unseen > forget {
			if e.named {
				q.Names = append(q.Names, &cluster.QueueName{Entry: e.number})
			}
			c.free(&c.queues, e, queueNumber(e))
			continue
		}
		if !e.named {
			q.Names = append(q.Names, &cluster.QueueName{Entry: e.number, Queue: e.name})
			e.named = true
		}
		if e.sum != e.sent {
			q.Entries, q.Rates, q.Rooms = append(q.Entries, e.number), append(q.Rates, uint64(e.sum.Rate)), append(q.Rooms, uint64(e.sum.Room))
			q.Had, q.Weights = append(q.Had, uint64(e.sum.Had)), append(q.Weights, uint64(e.sum.Weight))
			e.sent = e.sum
		}
	}
	if len(q.Names)+len(q.Entries) > 0 {
		r.Queues = q
	}
	c.mu.Lock()
	c.state.Entries, c.state.LeftOut = len(c.apps.byName), leftOut
	r.Policy = c.state.Policy
	c.mu.Unlock()
	return r
}

// capacity returns what the devices can guarantee together, in bytes per second; 0 if one of them does not know it.
func (c *Client) capacity() (sum uint64) {
	for _, t := range c.devices {
		if t.capacity <= 0 {
			return 0
		}
		sum += uint64(t.capacity)
	}
	return sum
}

// look is a query of a device's accounts.
type look struct {
	device Device
	done   chan struct{}
	// Valid once done is closed:
	uses     []Use
	capacity int64
	ok       bool
	at       time.Time
}

// look queries all devices concurrently and returns the answers that arrive within half a period.
// A device that does not answer in time is neither queried again nor waited for until it has
// answered, so that a hanging disk delays neither the other disks' reports nor the broker's
// answers.
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
				l.uses, l.capacity, l.ok = d.Uses()
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

// free removes an entry that is no longer seen.
func (c *Client) free(s *entries, e *entry, app int) {
	s.free(e, c.reports)
	for _, t := range c.devices {
		t.coord.Drop(app)
	}
}

// reportDevice adds one device's service to the entries. The first query of a device, and its first
// query in each stream, only sets the starting point of the device's accounts.
func (c *Client) reportDevice(sequence uint64, l *look) (leftOut int) {
	d, uses, now := l.device, l.uses, l.at
	t := c.devices[d.Name()]
	if t == nil || t.device != d {
		t = &tracked{device: d, demands: map[string]coord.RateMeter{}}
		c.devices[d.Name()] = t
	}
	t.capacity = l.capacity
	first, length := t.at.IsZero(), now.Sub(t.at)
	before := t.before
	t.at, t.before = now, make(map[string]Use, len(uses))
	for _, u := range uses {
		t.before[u.Flow] = u
	}
	if first || length <= 0 {
		return 0
	}
	var queues, done []coord.Use // a queue comes before its members
	var groups, members []*entry
	inside := map[*entry]bool{}
	all := time.Duration(0) // service of the device
	for _, u := range uses {
		if was := before[u.Flow]; was.Service <= u.Service && was.Wanted <= u.Wanted {
			all += u.Service - was.Service
		} else {
			all += u.Service
		}
	}
	for _, u := range uses {
		// A flow that the loop dropped, and that then came back, has started again at 0.
		if was := before[u.Flow]; was.Service <= u.Service && was.Wanted <= u.Wanted {
			u.Service, u.Wanted = u.Service-was.Service, u.Wanted-was.Wanted
			u.Bytes, u.LimitWaits = max(0, u.Bytes-was.Bytes), max(0, u.LimitWaits-was.LimitWaits)
			u.Streams, u.Waited, u.Contended = max(0, u.Streams-was.Streams), max(0, u.Waited-was.Waited), max(0, u.Contended-was.Contended)
		}
		e := c.apps.byName[u.Flow]
		if u.Service > 0 || u.Wanted > 0 {
			if e = c.apps.enter(u.Flow, c.reports); e == nil {
				leftOut++
				continue
			}
			e.unseen = 0
		}
		if e == nil {
			continue
		}
		t.noteDemand(e, u, length)
		noteWaits(e, u, all, length)
		right, _ := c.rights.of(e.name)
		path, ok := c.entriesOfPath(right.Queues)
		if !ok {
			leftOut++
			continue
		}
		use := coord.Use{App: int(e.number), Served: u.Service, Wanted: u.Wanted}
		for _, q := range path {
			if use.In = queueNumber(q); !inside[q] {
				inside[q] = true
				queues = append(queues, coord.Use{App: use.In, In: q.in})
				groups = append(groups, q)
			}
		}
		done = append(done, use)
		members = append(members, e)
	}
	maps.DeleteFunc(t.demands, func(name string, _ coord.RateMeter) bool {
		_, there := t.before[name]
		return !there
	})
	groups = append(groups, members...)
	for i, s := range t.coord.Report(sequence, length, append(queues, done...)) {
		groups[i].sum.Rate += s.Rate
		groups[i].sum.Room += s.Room
		groups[i].sum.Had = min(groups[i].sum.Had+s.Had, coord.MaxNeed)
		groups[i].sum.Weight = min(groups[i].sum.Weight+s.Weight, coord.MaxNeed)
	}
	return leftOut
}
