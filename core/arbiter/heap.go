package arbiter

// indexedHeap is a binary heap. Its items store their positions, so it takes O(log n) to move an
// item whose key has changed, or to remove an item. container/heap would need an interface
// conversion, and so an allocation, for each operation.
type indexedHeap[T any] struct {
	items []T
	less  func(a, b T) bool
	index func(T) *int // the item's position, from 1; 0 if it is not in the heap
}

func (p *indexedHeap[T]) len() int { return len(p.items) }

// first returns the item with the smallest key. The heap must not be empty.
func (p *indexedHeap[T]) first() T { return p.items[0] }

// set adds an item, or moves it to its place if it is in the heap already.
func (p *indexedHeap[T]) set(x T) {
	at := p.index(x)
	if *at == 0 {
		p.items = append(p.items, x)
		*at = len(p.items)
	}
	if len(p.items) == 1 {
		return
	}
	p.down(p.up(*at - 1))
}

// remove removes an item, if it is in the heap.
func (p *indexedHeap[T]) remove(x T) {
	at := p.index(x)
	if *at == 0 {
		return
	}
	i, last := *at-1, len(p.items)-1
	*at = 0
	moved := p.items[last]
	var zero T
	p.items[last] = zero
	p.items = p.items[:last]
	if i < last {
		p.items[i] = moved
		*p.index(moved) = i + 1
		p.down(p.up(i))
	}
}

func (p *indexedHeap[T]) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !p.less(p.items[i], p.items[parent]) {
			break
		}
		p.swap(i, parent)
		i = parent
	}
	return i
}

func (p *indexedHeap[T]) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(p.items); c++ {
			if p.less(p.items[c], p.items[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		p.swap(i, least)
		i = least
	}
}

func (p *indexedHeap[T]) swap(i, j int) {
	p.items[i], p.items[j] = p.items[j], p.items[i]
	*p.index(p.items[i]), *p.index(p.items[j]) = i+1, j+1
}
