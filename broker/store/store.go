// Package store keeps the decisions of operators: the versions of the policy, and the weights set
// for single applications. It also keeps what forecasts have learned from earlier runs, which a broker can do without.
// All other state of a broker is soft.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors of stores.
var (
	// ErrConflict means that another version was written first.
	ErrConflict = errors.New("another version of the policy was written first: review it and try again")
	// ErrNotLeader means that this broker no longer leads and may not write.
	ErrNotLeader = errors.New("this broker is not the leader")
	// ErrUnknown means that there is no version with that number, or that it is no longer kept.
	ErrUnknown = fmt.Errorf("no such version of the policy: only the newest %d are kept", Keep)
)

// Version is a version of the policy. Numbers begin at 1 and have no gaps.
type Version struct {
	Number  uint64
	Text    []byte         // the policy in YAML, checked
	Weights map[string]int // set for single applications; they override the rules
	Off     bool           // the kill switch is on: nodes govern nothing
	Canary  Canary
	Author  string
	Note    string
	Time    time.Time
}

// Canary is a policy that a part of the nodes follows in place of Version.Text.
type Canary struct {
	Percent int    // 1 to 99 of the nodes; 0: there is no canary
	Text    []byte // the policy in YAML, checked
}

// Store keeps versions. Its methods may be called by several goroutines.
type Store interface {
	// Latest returns the newest version; its number is 0 if there is none.
	Latest(ctx context.Context) (Version, error)
	// Get returns a version by its number.
	Get(ctx context.Context, number uint64) (Version, error)
	// History calls each for up to limit versions, newest first, until each returns false. Versions
	// are read one at a time, since all of them together may be gigabytes.
	History(ctx context.Context, limit int, each func(Version) bool) error
	// Append adds a version. Its number must be that of the newest version plus 1; otherwise
	// Append fails with ErrConflict. When Append returns nil, the version is on disk.
	Append(ctx context.Context, v Version) error
	// Changes receives a value after the newest version has changed, also if another broker
	// changed it.
	Changes() <-chan struct{}
	// Learned returns the record that KeepLearned has kept last, as it was found; nil if there is none.
	Learned(ctx context.Context) ([]byte, error)
	// KeepLearned replaces the record of what forecasts have learned (EncodeLearned). Whatever happens, the versions stay as they are.
	KeepLearned(ctx context.Context, record []byte) error
	Close() error
}
