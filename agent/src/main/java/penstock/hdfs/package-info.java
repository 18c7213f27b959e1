/** Advice for the DataNode: which methods are instrumented, and how. */
package penstock.hdfs;
