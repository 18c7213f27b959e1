// Package store keeps what operators have decided: the policy's versions, and weights set
// for single applications. All else that a broker knows is soft.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors of stores.
var (
	// ErrConflict: another version came first.
	ErrConflict = errors.New("another version of the policy came first: look at it and try again")
	// ErrNotLeader: this broker leads no more, so it may not write.
	ErrNotLeader = errors.New("this broker is not the leader")
	// ErrUnknown: there is no version of that number, or not any more.
	ErrUnknown = fmt.Errorf("no such version of the policy: the newest %d are kept", Keep)
)

// Version is one state of what operators have decided. Numbers begin at 1 and have no gaps.
type Version struct {
	Number  uint64
	Text    []byte         // the policy in YAML, checked
	Weights map[string]int // of single applications; above what the rules give
	Author  string
	Note    string
	Time    time.Time
}

// Store keeps versions. Its methods may be called by several goroutines.
type Store interface {
	// Latest returns the newest version; its number is 0 if there is none.
	Latest(ctx context.Context) (Version, error)
	// Get returns a version by its number.
	Get(ctx context.Context, number uint64) (Version, error)
	// History gives each up to limit versions, newest first, until it returns false. One
	// at a time: all that are kept, with their texts, may be gigabytes.
	History(ctx context.Context, limit int, each func(Version) bool) error
	// Append adds a version, whose number must be the newest one's and 1, or it fails with
	// ErrConflict. When it returns nil, the version is on disk.
	Append(ctx context.Context, v Version) error
	// Changes gets a value after the newest version has changed, by whomever.
	Changes() <-chan struct{}
	Close() error
}
