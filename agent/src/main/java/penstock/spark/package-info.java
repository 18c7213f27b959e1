/** Plug-ins and advice for Spark's executors. */
package penstock.spark;
