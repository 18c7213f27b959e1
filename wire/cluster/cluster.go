// Package cluster contains the messages between node daemons, the broker and operators, in Protocol
// Buffers and gRPC. Reports and answers are parallel lists of numbers instead of nested messages,
// because a broker reads a million entries a second. The command `make generate`, which needs
// protoc, generates the Go code. The generated code is committed.
package cluster

//go:generate ../../scripts/protoc cluster.proto

// Limits on both sides.
const (
	MaxEntries = 4096     // applications of one node
	MaxQueues  = 4096     // queues of one node
	MaxName    = 256      // bytes of a node's or application's name
	MaxQueue   = 512      // bytes of a queue's name
	MaxMessage = 4 << 20  // bytes of one message; enough to rename all entries to the longest names
	MaxHosts   = 64       // IP addresses that a node reports
	Window     = 64 << 10 // flow control window of a stream, in bytes; a connection has twice as much
)

// LeaderKey is the key of a gRPC trailer. In this trailer, a broker that does not lead names the
// leader, as host:port.
const LeaderKey = "penstock-leader"
