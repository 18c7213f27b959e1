// Package recent is a map of a bounded number of entries: a new one takes the place of
// the one that was not asked for the longest.
//
// Problem: what is counted by user, process or container must not grow with their
// number, which a peer may choose. Losing an entry that nobody asked for lately costs
// little, so the least recently used one goes.
package recent

import "container/list"

// Map is such a map. It is not safe for concurrent use.
type Map[K comparable, V any] struct {
	bound  int
	order  *list.List // of *entry; the last one asked for first
	places map[K]*list.Element
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// New makes a map of at most bound entries; bound is at least 1.
func New[K comparable, V any](bound int) *Map[K, V] {
	return &Map[K, V]{bound: bound, order: list.New(), places: map[K]*list.Element{}}
}

// Get returns the entry of k, which is the zero value at first. The pointer is good until
// the next Get.
func (m *Map[K, V]) Get(k K) *V {
	if at, ok := m.places[k]; ok {
		m.order.MoveToFront(at)
		return &at.Value.(*entry[K, V]).value
	}
	if m.order.Len() >= m.bound {
		oldest := m.order.Back()
		delete(m.places, oldest.Value.(*entry[K, V]).key)
		m.order.Remove(oldest)
	}
	e := &entry[K, V]{key: k}
	m.places[k] = m.order.PushFront(e)
	return &e.value
}

// Len is the number of entries.
func (m *Map[K, V]) Len() int { return m.order.Len() }
