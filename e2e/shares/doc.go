// Package shares tests, on a real HDFS on a modelled disk, that applications get the shares of
// their weights, and that bytes are attributed to the application that caused them.
//
// The judge is not Penstock: shares are taken from the request log that the modelled disk writes,
// joined with the places of the applications' block files. Penstock's own figures are then compared
// with these. The difficulty is to know that the claim applies: a weight determines a share only
// while the application is backlogged. So the tests watch the queues of the flows all the time, and
// fail if one was idle, because its share would then have no meaning. The rest is IBIS's method
// (sections 4 and 7): clients that always want more, weights of 3:1 and 7:3:1, and each
// application's share compared with its entitlement in every window of 10 s. A window's ends can
// cut off or include a quantum each, so a quantum has to be a small part of the smallest
// application's service in a window.
//
// The clients are real Hadoop clients with a task's id, like map tasks; two real MapReduce jobs
// check the attribution. Cases that would take long on a real disk are also tested in virtual time,
// in node/device.
package shares
