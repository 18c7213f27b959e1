package ipc

import (
	"sync"

	"penstock/wire"
)

// marks are the marks that have not been sent yet: the latest one of each stream, which replaces
// earlier ones. So they need no more room than the streams with new marks, and none while there
// are no new marks.
type marks struct {
	bound   int           // maximum number of streams with new marks
	version uint8         // of the frames
	news    chan struct{} // holds one element while there may be new marks

	mu     sync.Mutex
	order  []uint32 // streams with new marks, in the order of their first one
	latest map[uint32]int64
}

func newMarks(bound int, version uint8) *marks {
	return &marks{bound: bound, version: version, news: make(chan struct{}, 1)}
}

// put stores a mark. It returns false, and does not store the mark, if the bound is reached.
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

// sendAtOnce is the maximum number of marks in one write.
const sendAtOnce = 256

// append appends the frames of the next marks, at most sendAtOnce.
func (m *marks) append(buf []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(len(m.order), sendAtOnce)
	for _, stream := range m.order[:n] {
		var err error
		if buf, err = wire.AppendTo(buf, wire.Mark{Stream: stream, Position: m.latest[stream]}, m.version); err != nil {
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
	m.order, m.latest = nil, nil // releases the memory of a burst
	return buf, nil
}
