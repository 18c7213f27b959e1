// Package leadership decides which of a cluster's brokers leads. Only the leader answers nodes and
// changes the policy.
//
// With two leaders, each would add up the reports of a part of the nodes, and each could overwrite
// the other's policy. Every leadership has an epoch that is larger than all epochs before it.
// Safety does not depend on clocks: each change of the policy is one ZooKeeper transaction with a
// check of the epoch, so a former leader cannot change the policy (store.ZooKeeper). Clocks are
// used only to prevent two brokers from answering the same node. A leader holds a lease, which ends
// by the leader's own monotonic clock before ZooKeeper can elect a successor, even if the process
// was suspended meanwhile. And a node ignores answers of an epoch below the largest one that it has
// seen.
package leadership

import "time"

// State is the state of the leadership as known to this broker.
type State struct {
	Leading bool   // this broker leads
	Leader  string // address of the leader for nodes; empty: not known
	Epoch   uint64 // epoch of the leadership; 0: not known
}

// Leadership is one broker's view of the leadership. Its methods may be called by several
// goroutines.
type Leadership interface {
	State() State
	// Changes receives a value after State has changed. It has one reader, and one value may
	// stand for several changes.
	Changes() <-chan struct{}
}

// NextEpoch returns the epoch after last. It is larger than last, and at least the clock's time in
// ms, so epochs grow even if the last one was lost.
func NextEpoch(last uint64, now time.Time) uint64 {
	return max(last+1, uint64(max(now.UnixMilli(), 0)))
}
