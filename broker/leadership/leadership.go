// Package leadership says which of a cluster's brokers leads: only that one answers nodes
// and changes policy.
//
// Two brokers that both lead would each add up the part of the nodes that reports to it, and
// put policies into force over each other. Each leadership has an epoch, larger than all
// before it. What must never happen, a policy changed by who leads no more, is not left to
// clocks: the change is one transaction with a check of the epoch (store.ZooKeeper). What
// should not happen, a node that is answered by two, clocks do keep from it: a leader's word
// ends by its own monotonic clock before ZooKeeper can have given its place away, also if the
// process was stopped meanwhile; and nodes take no answer of a smaller epoch than they have seen.
package leadership

import "time"

// State is who leads, as far as this broker knows.
type State struct {
	Leading bool   // this broker does
	Leader  string // the address at which nodes reach the leader; empty: not known
	Epoch   uint64 // of that leadership; 0: none known
}

// Leadership is one broker's view of who leads. Its methods may be called by several
// goroutines.
type Leadership interface {
	State() State
	// Changes gets a value after State has changed; it is for one reader, and a value
	// stands for all changes since the last.
	Changes() <-chan struct{}
}

// NextEpoch is the epoch after last: larger, and not below the clock's milliseconds, so that
// it also grows where what kept the last one was lost.
func NextEpoch(last uint64, now time.Time) uint64 {
	return max(last+1, uint64(max(now.UnixMilli(), 0)))
}
