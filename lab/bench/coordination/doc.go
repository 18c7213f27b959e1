// Package coordination measures what shares of the whole cluster are worth, as IBIS does
// (section 7.6): applications whose tasks and replicas lie unevenly on the nodes, with the
// broker and without it, judged by the disks' own logs.
//
// What is due is the weighted max-min division that the placement allows (lab/sim/optimum),
// what is wrong the part of the service that is somewhere else. An application's slowdown
// is the disks' service that it has a second alone, over that in the contest: its jobs
// come one after another, so each takes so many times longer. The weights are those by
// which all are slowed down alike (IBIS, section 7.5), the services that each reaches
// alone. Whole jobs' run times would show less: who is served too well ends early and
// leaves the rest to the others.
package coordination
