// Package shares tests, on a real HDFS on a modelled disk, that applications
// get the shares that their weights say, and that bytes are booked to the
// application that caused them.
//
// The judge is not Penstock: shares are taken from the request log that the
// modelled disk writes, joined to the places of the applications' block files.
// What Penstock says of itself is then held against that. What is hard about
// it is to know that the claim applies at all: a weight binds an application
// only while it is backlogged, so the tests watch the queues of the flows all
// the while and fail when one was idle, rather than blame or praise a share
// that nobody asked for. The rest is IBIS's method (sections 4 and 7): clients
// that always want more, weights of 3:1 and 7:3:1, and what each got of its due in
// every window of 10 s. A window's ends cut off or take in a quantum each, so a
// quantum has to be a small part of what the least application gets in a window.
//
// The clients are real Hadoop clients that carry a task's id, as map tasks do; two
// real MapReduce jobs check the attribution. What would take long on a real disk
// is also tested in virtual time, in node/device.
package shares
