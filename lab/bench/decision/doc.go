// Package decision measures what one decision of Penstock's costs, part by part
// and without a disk or a cluster: the scheduler, the device loop around it, the
// messages to it, and the agent's gate in front of Hadoop's threads.
//
// IBIS (section 7.7) tells what the whole costs a job, as `penstock-lab bench
// overhead` does here. This tells why: a quantum is one decision, two messages
// and some thirty packets through a gate, so the figures, times the quanta per
// second that a disk can serve, bound what Penstock can cost; and a change that
// makes a part slower shows here although a whole job would hide it.
//
// A single decision takes less time than it takes to read the clock, so calls
// that short are timed in batches and quantiles are those of the batches' means;
// what is longer than a microsecond is timed one by one. Everything is measured
// through the production code: core/sfq and its peers, node/device's loop on
// files that are in memory and take no time, node/ipc's server on a real socket,
// the agent's own classes in a JVM of their own. A round trip stands beside a
// bare echo over the same kind of socket, since most of it is the kernel's.
package decision
