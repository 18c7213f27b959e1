package coordination

import (
	"penstock/core/coord"
	"penstock/core/sfq"
)

// entries are the applications, or the queues, that the node reports by number. Applications and
// queues are numbered separately.
type entries struct {
	most, longest int
	byName        map[string]*entry
	byNumber      []*entry
	freed         []freed // oldest first
}

// freed is a number that no entry has used since report number since.
type freed struct {
	number uint32
	since  uint64
}

// entry is an application or a queue of this node.
type entry struct {
	name   string
	number uint32
	unseen int // reports in a row without it
	// What the broker knows about the entry from this stream.
	named bool
	sent  coord.Service
	total coord.Service // in the broker's last answer
	known bool          // total is valid
	sum   coord.Service
	// The queue's place, and its weight there, according to the rights of this report.
	path   string
	in     int // its parent's number in core/coord; 0: the root
	weight float64
}

func newEntries(most, longest int) entries {
	return entries{most: most, longest: longest, byName: map[string]*entry{}}
}

// enter finds or creates the entry of a name; it returns nil if the bound is reached or the name is
// too long.
func (s *entries) enter(name string, reports uint64) *entry {
	if e := s.byName[name]; e != nil {
		return e
	}
	if name == "" || len(name) > s.longest {
		return nil
	}
	e := &entry{name: name}
	switch {
	case len(s.freed) > 0 && reports-s.freed[0].since > forget:
		e.number = s.freed[0].number
		s.freed = s.freed[1:]
		s.byNumber[e.number] = e
	case len(s.byNumber) < s.most:
		e.number = uint32(len(s.byNumber))
		s.byNumber = append(s.byNumber, e)
	default:
		return nil
	}
	s.byName[name] = e
	return e
}

// of returns the entry of a number; nil if the number has no entry.
func (s *entries) of(number uint32) *entry {
	if int(number) >= len(s.byNumber) {
		return nil
	}
	return s.byNumber[number]
}

// begin begins a report.
func (s *entries) begin() {
	for _, e := range s.byName {
		e.sum = coord.Service{}
		e.unseen++
	}
}

// renew begins a stream with a broker that knows nothing yet.
func (s *entries) renew() {
	for _, e := range s.byName {
		e.named, e.sent, e.total, e.known = false, coord.Service{}, coord.Service{}, false
	}
}

// free releases the number of an entry that is no longer seen.
func (s *entries) free(e *entry, reports uint64) {
	delete(s.byName, e.name)
	s.byNumber[e.number] = nil
	s.freed = append(s.freed, freed{e.number, reports})
}

// inOrder returns all entries, sorted by number.
func (s *entries) inOrder() (all []*entry) {
	for _, e := range s.byNumber {
		if e != nil {
			all = append(all, e)
		}
	}
	return all
}

// queueNumber returns a queue's number in core/coord; an application's number there is that of
// its entry.
func queueNumber(e *entry) int { return -1 - int(e.number) }

// entriesOfPath enters the queues on the path to an application, for this report. ok is false if a bound
// is reached, or if another application has a queue of the same name with another place or
// weight: while a new policy spreads, there are rights of two policies.
func (c *Client) entriesOfPath(levels []sfq.Level) (queues []*entry, ok bool) {
	path, in := "", 0
	for _, l := range levels {
		e := c.queues.enter(l.Name, c.reports)
		if e == nil {
			return nil, false
		}
		path += "/" + l.Name
		if e.unseen > 0 || e.path == "" {
			e.unseen, e.path, e.in, e.weight = 0, path, in, float64(l.Weight)
		} else if e.path != path || e.in != in || e.weight != float64(l.Weight) {
			return nil, false
		}
		in = queueNumber(e)
		queues = append(queues, e)
	}
	return queues, true
}
