// Package coordination measures the benefit of shares of the whole cluster, as IBIS does (section
// 7.6): applications with an uneven placement of tasks and replicas on the nodes, with the broker
// and without it, judged by the disks' own logs.
//
// The reference is the weighted max-min division for the placement (lab/sim/optimum). Service that
// deviates from it is misallocated. An application's slowdown is its service per second alone,
// divided by its service per second in the contest: its jobs run one after another, so each takes
// longer by that factor. The weights are the services that the applications reach alone, so that
// all are slowed down alike (IBIS, section 7.5). Run times of whole jobs would show less: an
// application that gets too much ends early and leaves the rest to the others.
package coordination
