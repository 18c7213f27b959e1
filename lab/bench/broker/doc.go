// Package broker measures what the cluster's broker costs with as many nodes as a large
// cluster has: processor time, memory, bytes, how late totals are, and how long it takes
// until all nodes are back when it was started again.
//
// IBIS (section 5) has its broker on eight nodes. What grows with a cluster is not the
// arithmetic, an addition for each entry, but what surrounds it: a connection of TLS and
// HTTP/2 a node, two messages a period each. So the broker is the real one, a process as
// users run it, and nodes are emulated on their side of the wire only: each has a certificate
// of its own, a connection made by the production code's own options, and says what a node
// says, names first and then what has changed. What their devices do is drawn by a seed.
//
// Emulated nodes cost as much as the broker does, or more, on the same machine. So they are in
// processes of their own and costs are in CPU time of each process. Delays are as the nodes
// see them, with their own waiting for a processor in them: on a machine that is short of
// processors they are upper bounds.
package broker
