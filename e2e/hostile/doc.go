// Package hostile attacks the daemon with valid frames.
//
// Problem: an agent lives in a process of somebody else's, and what it sends is taken from
// whoever may connect. A frame that is wrong ends its connection; the harm is in frames that
// are right: claims of terabytes, progress without end, thousands of streams, every place
// taken. Choice: the binary that users run, on a modelled disk, with peers that are programs
// of these tests: they speak the protocol in processes of their own, as an unprivileged user
// where the attack is one of a task. Hadoop is not needed for that.
//
// What is judged is the neighbour: a reader or a writer of another application on the same
// disk keeps what it had without the attacker, and the daemon lives on within its bounds. A
// guard looks at the latter all the time: heartbeats, memory, the status page. Rates are
// compared with the same neighbour's just before, with loose bounds, as the machine may be
// busy; what was measured is logged.
package hostile
