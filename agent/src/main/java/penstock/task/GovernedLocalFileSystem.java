package penstock.task;

import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.slf4j.LoggerFactory;

/**
 * The local file system of a task, set as {@code fs.file.impl} by its job: data that map and reduce tasks spill, merge
 * and fetch to local disks goes through the daemon's queues like HDFS's blocks. A task's JVM lives for seconds, so it
 * is not instrumented; Hadoop loads this class by its own rules, and everything except the waits is Hadoop's own code.
 *
 * <p>MapReduce unwraps this file system: spills and merges use {@code getRaw()}, without checksums. So the work is done
 * one level below, in {@link GovernedRaw}. This class, with its checksum files, uses GovernedRaw as well.
 */
public final class GovernedLocalFileSystem extends LocalFileSystem {
    /** Called by Hadoop, by reflection. */
    public GovernedLocalFileSystem() {
        this(raw());
    }

    GovernedLocalFileSystem(RawLocalFileSystem raw) {
        super(raw);
    }

    /** If this Hadoop lacks anything that the classes need, the task has Hadoop's own raw file system. */
    private static RawLocalFileSystem raw() {
        try {
            return new GovernedRaw(System.getenv());
        } catch (LinkageError e) {
            LoggerFactory.getLogger(GovernedLocalFileSystem.class).info("local files go ungoverned: " + e);
            return new RawLocalFileSystem();
        }
    }
}
