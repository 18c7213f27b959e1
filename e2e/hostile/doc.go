// Package hostile attacks the daemon with valid frames.
//
// Problem: an agent is in another user's process, and the daemon accepts frames from any process
// that may connect. An invalid frame ends its connection, so the danger is in valid frames: claims
// of terabytes, endless progress, thousands of streams, all places taken. Choice: the binary that
// users run, on a modelled disk, with programs of these tests as peers. They speak the protocol in
// their own processes, as an unprivileged user if the attack comes from a task. Hadoop is not
// needed for that.
//
// The tests judge the neighbour and the daemon: a reader or a writer of another application on the
// same disk keeps its rate from before the attack, and the daemon survives within its bounds. A
// guard checks the daemon all the time: heartbeats, memory, the status page. Rates are compared
// with the same neighbour's rate just before, with loose bounds, as the machine may be busy; the
// measured rates are logged.
package hostile
