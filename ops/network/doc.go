// Package network measures what a container network costs on this machine: throughput and CPU time per byte,
// the round trip, and how the round trip grows with the number of containers.
//
// Problem: containers of a Hadoop cluster on one machine talk over a bridge, and often through address translation.
// "Analysis of a Network IO Bottleneck in Big Data Environments based on Docker Containers" (BigData Research 3,
// 2016; "the paper" below) found that this path costs CPU time (Figure 3) and time for each transaction (Figure 4),
// and that round trips grow with the number of containers (Figure 5). It measured with netperf and
// perf, on a cluster. Operators have neither, and a mean of everything does not show which part costs what.
//
// Choice: each end of a connection is a process of its own, which is this program again (RunIfWorker). A container is
// such a process in its own network namespace, with a veth to a bridge in a further namespace. Each set-up adds
// one step to the one before: loopback; a bridge; the same bridge with Docker's rules; the same through a published port. The
// processes use blocking system calls on threads of their own. The thread's delay in the run queue and its switches
// are the kernel's (/proc/PID/task/TID/schedstat and status), so that waiting for the CPU and the
// path through the network are distinguished.
//
// All namespaces are without a name: they end with the processes that use them, so nothing remains of a
// measurement, not even of a killed one. The machine's own interfaces, rules and parameters are never changed.
//
// Departures from the paper. CPU time comes from /proc/stat and from the threads instead of perf, because virtual
// machines often lack performance counters. Both ends are on this machine, so there is no physical network in the
// figures. The virtual environment of Figure 4 is not a set-up: the measurement shows the machine on which it runs.
package network
