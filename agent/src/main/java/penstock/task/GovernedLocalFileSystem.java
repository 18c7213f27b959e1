package penstock.task;

import org.apache.hadoop.fs.LocalFileSystem;

/**
 * The local file system of a task, set as {@code fs.file.impl} by its job: what
 * map and reduce tasks spill, merge and fetch to local disks goes through the
 * daemon's queues like HDFS's blocks. A task's JVM lives for seconds, so nothing is
 * woven into it; this is a class that Hadoop loads by its own rules, and everything but
 * waiting is Hadoop's own code.
 *
 * <p>MapReduce unwraps it: spills and merges use {@code getRaw()}, without checksums.
 * So the work is done one level down, in {@link GovernedRaw}, which this one and its
 * checksum files use as well.
 */
public final class GovernedLocalFileSystem extends LocalFileSystem {
    /** Called by Hadoop, by reflection. */
    public GovernedLocalFileSystem() {
        this(new GovernedRaw(System.getenv()));
    }

    GovernedLocalFileSystem(GovernedRaw raw) {
        super(raw);
    }
}
