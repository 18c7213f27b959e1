package sfq

// heap holds the ready members of a queue, ordered by the start tag of their next request and,
// among equal tags, by sequence number. The heap knows the position of each member, so a member
// whose tag has changed is moved in O(log n). Nodes have four children: that halves the levels of a
// binary heap, and siblings share cache lines. The entries contain the keys, so comparisons need no
// other memory. container/heap would allocate for each operation.
type heap struct {
	entries []entry
	*heapPositions
}

// heapPositions holds the positions of members in their heaps. All heaps of a scheduler share one
// heapPositions, because each member is in at most one heap.
type heapPositions struct {
	index []int32 // position in entries by the member's slot; -1 if the member is in no heap
}

// slot maps flows to even indexes and queues, whose numbers are negative, to odd ones. So a few
// queues take little memory.
func slot(id Flow) int { return int(id<<1 ^ id>>31) }

type entry struct {
	start  tag
	seq    uint64
	member Flow
}

func (a *entry) before(b *entry) bool {
	if a.start != b.start {
		return a.start.less(b.start)
	}
	return a.seq < b.seq
}

// admit makes room for a member.
func (p *heapPositions) admit(id Flow) {
	for slot(id) >= len(p.index) {
		p.index = append(p.index, -1)
	}
}

// has reports whether a member is in a heap.
func (p *heapPositions) has(id Flow) bool { return p.index[slot(id)] >= 0 }

// set adds an entry, or moves it to its place.
func (h *heap) set(e entry) {
	i := int(h.index[slot(e.member)])
	if i < 0 {
		i = len(h.entries)
		h.entries = append(h.entries, e)
		h.up(i, e)
		return
	}
	if e.before(&h.entries[i]) {
		h.up(i, e)
	} else {
		h.down(i, e)
	}
}

// remove removes a member, if it is in the heap.
func (h *heap) remove(id Flow) {
	i := int(h.index[slot(id)])
	if i < 0 {
		return
	}
	h.index[slot(id)] = -1
	last := len(h.entries) - 1
	e := h.entries[last]
	h.entries = h.entries[:last]
	if i == last {
		return
	}
	if i > 0 && e.before(&h.entries[(i-1)/4]) {
		h.up(i, e)
	} else {
		h.down(i, e)
	}
}

// up puts e at position i or above; position i is free.
func (h *heap) up(i int, e entry) {
	entries, index := h.entries, h.index
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(&entries[parent]) {
			break
		}
		entries[i] = entries[parent]
		index[slot(entries[i].member)] = int32(i)
		i = parent
	}
	entries[i] = e
	index[slot(e.member)] = int32(i)
}

// down puts e at position i or below; position i is free.
func (h *heap) down(i int, e entry) {
	entries, index := h.entries, h.index
	for {
		first := 4*i + 1
		if first >= len(entries) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(entries)); c++ {
			if entries[c].before(&entries[least]) {
				least = c
			}
		}
		if !entries[least].before(&e) {
			break
		}
		entries[i] = entries[least]
		index[slot(entries[i].member)] = int32(i)
		i = least
	}
	entries[i] = e
	index[slot(e.member)] = int32(i)
}
