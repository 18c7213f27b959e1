/** The file system that tasks of MapReduce and Spark use for local files. */
package penstock.task;
