// Package hostile attacks the daemon with valid frames.
//
// Problem: an agent is in another user's process, and the daemon accepts frames from any process
// that may connect. An invalid frame ends its connection, so the danger is in valid frames: claims
// of terabytes, endless progress, thousands of streams, all connections taken. Choice: the tests
// run the binary that users run, on a modelled disk, with their own programs as peers. The programs
// speak the protocol in processes of their own, as an unprivileged user if the attack comes from a
// task. Hadoop is not needed for that.
//
// The tests judge the neighbour and the daemon. The neighbour, a reader or a writer of another
// application on the same disk, must keep the rate that it had before the attack. The daemon must
// survive within its bounds. A guard checks the daemon all the time: heartbeats, memory, the status
// page. Rates are compared with the same neighbour's rate just before, with loose bounds, because
// the machine may be busy. The measured rates are logged.
package hostile
