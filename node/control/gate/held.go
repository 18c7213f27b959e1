package gate

import "sync"

const (
	// maxHeld is the number of operations that can wait for an answer of the daemon at the same time.
	// Further ones pass.
	maxHeld = 4096
	// maxHeldOfClass is the number of operations of one class. If a process has more threads than that, some of
	// its own operations pass, and those of other classes are still held.
	maxHeldOfClass = maxHeld / 4 * 3
)

// heldOperation is an operation that waits for the daemon's answer.
type heldOperation struct {
	request Request
	fd      int32 // the event's descriptor; 0: the slot is free
	since   uint32
}

// heldTable contains the operations that wait. An id is the number of a slot together with the number of
// times that the slot was used. So a late answer to an earlier operation of the slot finds nothing.
type heldTable struct {
	mu    sync.Mutex
	slots [maxHeld]heldOperation
	uses  [maxHeld]uint64
	free  []uint16
	of    map[uint32]int // number of operations by class
}

func newHeldTable() *heldTable {
	t := &heldTable{free: make([]uint16, maxHeld), of: map[uint32]int{}}
	for i := range t.free {
		t.free[i] = uint16(maxHeld - 1 - i)
	}
	return t
}

// add enters an operation and sets its id. It returns false if the table is full, for the operation's class or for all.
func (t *heldTable) add(r *Request, fd int32, tick uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := len(t.free) - 1
	if last < 0 || t.of[r.Class] >= maxHeldOfClass {
		return false
	}
	t.of[r.Class]++
	i := t.free[last]
	t.free = t.free[:last]
	t.uses[i]++
	r.ID = t.uses[i]*maxHeld + uint64(i)
	t.slots[i] = heldOperation{*r, fd, tick}
	return true
}

// take removes an operation and returns its descriptor.
func (t *heldTable) take(id uint64) (fd int32, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.takeLocked(id)
}

func (t *heldTable) takeLocked(id uint64) (fd int32, ok bool) {
	s := &t.slots[id%maxHeld]
	if s.fd == 0 || s.request.ID != id {
		return 0, false
	}
	fd = s.fd
	if t.of[s.request.Class]--; t.of[s.request.Class] == 0 {
		delete(t.of, s.request.Class)
	}
	*s = heldOperation{}
	t.free = append(t.free, uint16(id%maxHeld))
	return fd, true
}

// takeIf removes the operations that chosen selects and returns their descriptors.
func (t *heldTable) takeIf(chosen func(*heldOperation) bool) (fds []int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.slots {
		if s := &t.slots[i]; s.fd != 0 && chosen(s) {
			fd, _ := t.takeLocked(s.request.ID)
			fds = append(fds, fd)
		}
	}
	return fds
}

// use calls f with an operation if it still waits, and reports whether it does. No other thread can answer
// the operation while f runs.
func (t *heldTable) use(id uint64, f func(*heldOperation)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.slots[id%maxHeld]
	if s.fd == 0 || s.request.ID != id {
		return false
	}
	f(s)
	return true
}

func (t *heldTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maxHeld - len(t.free)
}
