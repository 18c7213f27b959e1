// Package failure tests what happens when things go wrong: a small real HDFS on
// modelled disks, the agent in its DataNodes, the daemon as a process of its
// own, and everything that an operator's worst night may bring done to it.
//
// The promise is the same throughout: a living Hadoop comes first. Whatever
// becomes of the daemon, no operation fails, none is held up for more than about
// a second, and no byte is lost; whatever becomes of Hadoop, the daemon lives,
// holds no slot for the dead and serves the others.
//
// One HDFS serves all tests, for it is what takes the time; each test has a
// daemon and applications of its own. Tests await events: a client stops at the
// byte that the test says and reports it (client/Client.java), and metrics are
// asked until they say what they should. Durations are only judged where one is
// the promise, and then against bounds that a busy machine keeps too.
package failure
