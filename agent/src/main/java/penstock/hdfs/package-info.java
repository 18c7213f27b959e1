/** Advice for the DataNode: which methods are woven, and what is done there. */
package penstock.hdfs;
