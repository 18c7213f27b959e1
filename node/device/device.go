// Package device drives the arbiter of one device: it gives it the clock and what agents report,
// does the I/O that it starts, and takes its marks to the agents. It decides nothing itself
// (core/arbiter does), but for the order in which it looks at what has come in.
//
// One goroutine a device owns the arbiter (loop.go). The blocking system calls run in
// goroutines of their own, as many as the arbiter has requests at the device (work.go). What
// agents report waits in a queue a connection, the newest position of a stream in the place of
// older ones (mailbox.go): so a peer that reports without end costs its own streams their
// turns, and nobody else's.
package device

import "penstock/core/arbiter"

// The arbiter's words, as the rest of the daemon knows them.
type (
	Config       = arbiter.Config
	Mode         = arbiter.Mode
	Rule         = arbiter.Rule
	Policy       = arbiter.Policy
	Queue        = arbiter.Queue
	Parts        = arbiter.Parts
	Kind         = arbiter.Kind
	KindSnapshot = arbiter.KindSnapshot
	FlowSnapshot = arbiter.FlowSnapshot
	Snapshot     = arbiter.Snapshot
)

// The arbiter's constants.
const (
	Off     = arbiter.Off
	Observe = arbiter.Observe
	Enforce = arbiter.Enforce

	Persistent   = arbiter.Persistent
	Intermediate = arbiter.Intermediate
	Network      = arbiter.Network

	Open             = arbiter.Open // a mark that holds nobody back
	MinLimit         = arbiter.MinLimit
	UnattributedFlow = arbiter.UnattributedFlow
)

// NetworkName is the name of the network device.
const NetworkName = "network"

// The arbiter's functions.
var (
	ParseMode = arbiter.ParseMode
	NewQueue  = arbiter.NewQueue
)
