/**
 * Turns at the disks of storage servers.
 *
 * <p>A storage server serves all its clients by one process, so the kernel of its machine cannot tell analytics and
 * other clients apart. So analytics ask: before each large read or write, they ask the daemon of the server that holds
 * the range for a turn at its disk. If there is any doubt, the read or write goes ahead.
 */
package penstock.sharedfs.turns;
