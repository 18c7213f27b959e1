// Package broker measures the cost of the cluster's broker with as many nodes as a large cluster
// has: CPU time, memory, bytes, the delay of totals, and the time until all nodes have reconnected
// after a restart.
//
// IBIS (section 5) uses its broker with eight nodes. The arithmetic is small, one addition per
// entry; most of the cost is in a TLS and HTTP/2 connection per node, and two messages per period.
// So the broker is the real process, and only the nodes are emulated. Each emulated node has its
// own certificate and a connection with the production code's options, and sends the same messages
// as a real node: names first, then changes. The activity of its devices is drawn from a seed.
//
// The emulated nodes, on the same machine, use as much CPU time as the broker or more. So they run
// in processes of their own, and the CPU time of each process is measured separately. Delays
// include the nodes' own wait for a CPU, so on a machine with too few CPUs they are upper bounds.
package broker
