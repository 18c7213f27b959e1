package store

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Memory keeps versions in memory, for as long as the broker runs.
type Memory struct {
	mu       sync.Mutex
	versions []Version // oldest first
	learned  []byte
	changes  chan struct{}
}

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{changes: make(chan struct{}, 1)} }

// Latest implements Store.
func (m *Memory) Latest(context.Context) (Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.versions) == 0 {
		return Version{}, nil
	}
	return m.versions[len(m.versions)-1].clone(), nil
}

// Get implements Store.
func (m *Memory) Get(_ context.Context, number uint64) (Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.versions {
		if v.Number == number {
			return v.clone(), nil
		}
	}
	return Version{}, ErrUnknown
}

// History implements Store.
func (m *Memory) History(_ context.Context, limit int, each func(Version) bool) error {
	m.mu.Lock()
	kept := slices.Clone(m.versions)
	m.mu.Unlock()
	for _, v := range slices.Backward(kept[max(0, len(kept)-limit):]) {
		if !each(v.clone()) {
			break
		}
	}
	return nil
}

// Append implements Store.
func (m *Memory) Append(_ context.Context, v Version) error {
	if err := v.Check(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	latest := uint64(0)
	if n := len(m.versions); n > 0 {
		latest = m.versions[n-1].Number
	}
	if v.Number != latest+1 {
		return ErrConflict
	}
	v = v.clone()
	v.Time = unixMilli(v.Time.UnixMilli())
	if m.versions = append(m.versions, v); len(m.versions) > Keep {
		m.versions = slices.Delete(m.versions, 0, len(m.versions)-Keep)
	}
	notify(m.changes)
	return nil
}

// Changes implements Store.
func (m *Memory) Changes() <-chan struct{} { return m.changes }

// Learned implements Store.
func (m *Memory) Learned(context.Context) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.learned), nil
}

// KeepLearned implements Store.
func (m *Memory) KeepLearned(_ context.Context, record []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.learned = slices.Clone(record)
	return nil
}

// Close implements Store.
func (m *Memory) Close() error { return nil }

func (v Version) clone() Version {
	v.Text, v.Weights, v.Canary.Text = slices.Clone(v.Text), maps.Clone(v.Weights), slices.Clone(v.Canary.Text)
	return v
}

// notify puts a value into a channel, unless there is one already.
func notify(changes chan struct{}) {
	select {
	case changes <- struct{}{}:
	default:
	}
}

func unixMilli(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
