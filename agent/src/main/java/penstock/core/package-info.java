/** The agent's own half: connection to the daemon, frames, gates, marks, names. It knows neither Hadoop nor Spark. */
package penstock.core;
