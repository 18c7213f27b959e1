// Package decision measures the cost of one decision, part by part, without a disk or a cluster: the
// scheduler, the device loop around it, the messages, and the agent's gate in front of Hadoop's threads.
//
// IBIS (section 7.7) measures the total cost for a job, as `penstock-lab bench overhead` does. This
// package shows where the cost arises. A quantum costs one decision, two messages and the passage
// of some thirty packets through a gate. So the figures, multiplied by the quanta per second that a
// disk can serve, bound Penstock's cost. They also show a part that has become slower, which the
// run time of a whole job would hide.
//
// A decision takes less time than reading the clock, so short calls are timed in batches, and
// quantiles are those of the batches' means. Calls over a microsecond are timed one by one. All
// measurements go through production code: core/sfq and its peers, node/device's loop on files in
// memory, node/ipc's server on a real socket, and the agent's own classes in a JVM. A round trip is
// shown together with an echo over the same kind of socket, because most of its time is the
// kernel's.
package decision
