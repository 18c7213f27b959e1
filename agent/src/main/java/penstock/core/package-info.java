/** The part of the agent that does not depend on Spark: the connection to the daemon, frames, gates, marks, names. */
package penstock.core;
