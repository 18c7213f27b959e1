// Package broker measures the cost of the cluster's broker with as many nodes as a large cluster
// has: CPU time, memory, bytes, the delay of totals, and the time until all nodes are back after a
// restart.
//
// IBIS (section 5) uses its broker with eight nodes. The arithmetic is small, one addition per
// entry; most of the cost is in a TLS and HTTP/2 connection per node, and two messages per period.
// So the broker is the real process, and nodes are emulated only on their side of the wire. Each
// has its own certificate and a connection with the production code's options, and sends the same
// messages as a node: names first, then changes. The activity of its devices is drawn from a seed.
//
// Emulated nodes cost as much as the broker or more, on the same machine. So they run in their own
// processes, and costs are the CPU time of each process. Delays include
// the nodes' own wait for a CPU, so on a machine with too few CPUs they are upper bounds.
package broker
