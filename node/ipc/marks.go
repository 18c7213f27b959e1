package ipc

import (
	"sync"

	"penstock/wire"
)

// marks are those that the peer has not been sent yet: the latest of each stream, which
// takes the place of an earlier one. So they take no more room than the streams that have
// news, and nothing while there are none.
type marks struct {
	bound int           // streams with news at a time
	news  chan struct{} // holds one while there may be some

	mu     sync.Mutex
	order  []uint32 // streams with news, the first to have some first
	latest map[uint32]int64
}

func newMarks(bound int) *marks { return &marks{bound: bound, news: make(chan struct{}, 1)} }

// put takes a mark; it reports false, and leaves it, past the bound.
func (m *marks) put(stream uint32, position int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.latest[stream]; !ok {
		if len(m.order) >= m.bound {
			return false
		}
		if m.latest == nil {
			m.latest = map[uint32]int64{}
		}
		m.order = append(m.order, stream)
	}
	m.latest[stream] = position
	select {
	case m.news <- struct{}{}:
	default:
	}
	return true
}

// sendAtOnce is how many marks go into one write at most.
const sendAtOnce = 256

// append appends the frames of the next marks, at most sendAtOnce.
func (m *marks) append(buf []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(len(m.order), sendAtOnce)
	for _, stream := range m.order[:n] {
		var err error
		if buf, err = wire.Append(buf, wire.Mark{Stream: stream, Position: m.latest[stream]}); err != nil {
			return buf, err
		}
		delete(m.latest, stream)
	}
	if m.order = m.order[n:]; len(m.order) > 0 {
		select {
		case m.news <- struct{}{}:
		default:
		}
		return buf, nil
	}
	m.order, m.latest = nil, nil // what a burst has taken is given back
	return buf, nil
}
