// Package device drives the arbiter of one device: it supplies the time and the agents' reports,
// does the I/O that the arbiter starts, and sends its marks to the agents. The arbiter
// (core/arbiter) decides. This package decides only the order in which events are processed.
//
// One goroutine per device owns the arbiter (loop.go). Blocking system calls run in goroutines of
// their own, one for each request at the device (work.go). Reports wait in a queue for each
// connection, where a stream's newest position replaces older ones (mailbox.go). So a peer that
// reports without pause delays only its own streams.
package device

import "penstock/core/arbiter"

// The arbiter's types, for the rest of the daemon.
type (
	Config          = arbiter.Config
	Mode            = arbiter.Mode
	Rule            = arbiter.Rule
	Policy          = arbiter.Policy
	Queue           = arbiter.Queue
	Parts           = arbiter.Parts
	Kind            = arbiter.Kind
	KindSnapshot    = arbiter.KindSnapshot
	FlowSnapshot    = arbiter.FlowSnapshot
	ReserveSnapshot = arbiter.ReserveSnapshot
	LatencySnapshot = arbiter.LatencySnapshot
	Snapshot        = arbiter.Snapshot
)

// The arbiter's constants.
const (
	Off     = arbiter.Off
	Observe = arbiter.Observe
	Enforce = arbiter.Enforce

	Persistent   = arbiter.Persistent
	Intermediate = arbiter.Intermediate
	Network      = arbiter.Network

	Open             = arbiter.Open // a mark that holds nothing back
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
