/**
 * A shuffle for MapReduce that reads map outputs where they lie, on a file system that all nodes mount.
 *
 * <p>Hadoop's shuffle copies each map output through the map's NodeManager, spills the copies, and merges them again. If
 * the local directories of NodeManagers lie on a shared parallel file system, the reduce can read every map's
 * {@code file.out} itself: one merge over the files, straight into the reducer. The paper "Progress on Efficient
 * Integration of Lustre and Hadoop/YARN" calls this avoiding "unnecessary shuffle spill and repetitive merge", and begins
 * to read when all map outputs have been written, so that readers and writers do not contend for locks.
 *
 * <p>Three things are hard. The merge of thousands of files needs bounds: {@link penstock.sharedfs.shuffle.OpenFiles}
 * bounds descriptors, {@link penstock.sharedfs.shuffle.MergeBounds} memory. The place of another node's file must be
 * known: {@link penstock.sharedfs.shuffle.Places} computes it from a pattern, because the files stay in the folder that
 * YARN deletes. And a file may be missing: then {@link penstock.sharedfs.shuffle.SharedShuffle} leaves the whole reduce to
 * Hadoop's own shuffle, after whose report a map can run again.
 *
 * <p>The package uses classes of Hadoop that are marked as private or for MapReduce only. Their used parts are the same in
 * the releases 3.3.6, 3.4.2 and 3.5.0.
 */
package penstock.sharedfs.shuffle;
