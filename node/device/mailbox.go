package device

import (
	"sync"
	"time"
)

// mailbox keeps the agents' reports until the loop processes them. Each stream has one place in the
// mailbox, however often it reports; the place holds the newest position. The loop takes one stream
// of each connection in turn, so that a connection with thousands of streams does not delay the
// others.
type mailbox struct {
	mu      sync.Mutex
	ended   bool
	from    map[Marker]*sender
	turns   []*sender // senders with news, the next one first
	arrived chan struct{}
}

// sender holds a connection's streams with news, in order of arrival.
type sender struct {
	marker  Marker
	streams []*Stream
	since   time.Time // time of its last turn, or of the arrival of its first news
}

// news holds the reports of a stream that the loop has not processed yet.
type news struct {
	waits    bool // the stream is in its sender's queue
	open     bool
	moved    bool // pos is new
	pos      int64
	reassign bool
	flow     string
	user     string
	closed   bool
	last     int64 // position at the close; below 0: not known
}

func newMailbox() mailbox {
	return mailbox{from: map[Marker]*sender{}, arrived: make(chan struct{}, 1)}
}

// put changes a stream's news. It reports whether the loop will process the news; false after the
// loop has ended.
func (m *mailbox) put(s *Stream, change func(*news)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return false
	}
	change(&s.news)
	if s.news.waits {
		return true
	}
	s.news.waits = true
	from := m.from[s.Marker]
	if from == nil {
		from = &sender{marker: s.Marker, since: time.Now()}
		m.from[s.Marker] = from
		m.turns = append(m.turns, from)
	}
	from.streams = append(from.streams, s)
	select {
	case m.arrived <- struct{}{}:
	default: // the loop is about to wake
	}
	return true
}

// take returns the next stream with news, and its news; nil if no stream has news.
func (m *mailbox) take(now time.Time) (*Stream, news) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.turns) == 0 {
		return nil, news{}
	}
	from := m.turns[0]
	s := from.streams[0]
	from.streams[0] = nil
	from.streams = from.streams[1:]
	m.turns[0] = nil
	m.turns = m.turns[1:]
	if len(from.streams) > 0 {
		from.since = now
		m.turns = append(m.turns, from)
	} else {
		delete(m.from, from.marker)
	}
	n := s.news
	s.news = news{}
	return s, n
}

// more reports whether there is news.
func (m *mailbox) more() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.turns) > 0
}

// oldest returns since when the connection with the next turn has been waiting; any is false if no
// connection waits.
func (m *mailbox) oldest() (since time.Time, any bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.turns) == 0 {
		return time.Time{}, false
	}
	return m.turns[0].since, true
}

// end refuses further news, and returns the streams with unprocessed news.
func (m *mailbox) end() (left []*Stream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	for _, from := range m.turns {
		left = append(left, from.streams...)
	}
	m.turns, m.from = nil, nil
	return left
}
