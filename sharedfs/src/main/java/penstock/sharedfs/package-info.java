/**
 * Hadoop's file system {@code shared:} over a parallel file system that is mounted on every node.
 *
 * <p>MapReduce and Spark place tasks where {@code getFileBlockLocations} says that the data is. For a mounted file
 * system, Hadoop's local file system answers "localhost", so that each task reads over the network. This file system
 * answers from the layout of the file (package {@code layout}).
 *
 * <p>It does not extend Hadoop's RawLocalFileSystem, which is made for one machine's own disk: that class starts a
 * process to read or set permissions (without libhadoop), throws an Error when I/O fails, checks for an existing file
 * and creates it in two steps, and copies when a rename fails. Over a shared mount these are a cost per file, a killed
 * task, and races between machines.
 */
package penstock.sharedfs;
