/** The file system that MapReduce's tasks use for local files. */
package penstock.task;
