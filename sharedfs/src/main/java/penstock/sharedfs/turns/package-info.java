/**
 * Turns at the disks of storage servers.
 *
 * <p>A storage server serves all its clients by one process, so the kernel of its machine cannot tell analytics and
 * other clients apart. Before each large read or write, analytics therefore ask the daemon of the server that holds the
 * range for a turn at the server's disk. In doubt, the read or write goes ahead.
 */
package penstock.sharedfs.turns;
