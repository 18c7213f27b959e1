/**
 * The common part of the agent: the connection to the daemon, frames, gates, marks and names. The parts for HDFS, the
 * shuffle, tasks and Spark depend on it.
 */
package penstock.core;
