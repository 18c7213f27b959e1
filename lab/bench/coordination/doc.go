// Package coordination measures the benefit of shares of the whole cluster, as IBIS does (section 7.6):
// applications whose tasks and replicas lie unevenly on the nodes, with the broker and without it,
// judged by the disks' own logs.
//
// The yardstick is the weighted max-min division that the placement allows (lab/sim/optimum); service
// that is elsewhere is misallocated. An application's slowdown is the service per second that it has
// alone, divided by that in the contest: its jobs run one after another, so each takes so many times
// longer. The weights are the services that each application reaches alone, by which all are slowed
// down alike (IBIS, section 7.5). Run times of whole jobs would show less: an application that gets too
// much ends early and leaves the rest to the others.
package coordination
