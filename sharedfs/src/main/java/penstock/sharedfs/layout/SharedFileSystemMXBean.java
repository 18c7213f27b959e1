package penstock.sharedfs.layout;

/** The MBean {@code penstock:type=SharedFileSystem}, for all mounts of this JVM. */
public interface SharedFileSystemMXBean {
    /** Files whose layout the tools were asked for. */
    long getAsked();

    /** Files whose layout was still known. */
    long getRemembered();

    /** Files that were asked for without a valid answer: they have no locality. */
    long getUnanswered();

    /** Files that were not asked for, because the tools had failed shortly before: they have no locality. */
    long getNotAsked();

    /** Times that a tool did not start, took too long, or gave no answer at all. */
    long getFailures();

    /** Files that were created on the writer's own server. */
    long getCreatedNear();

    /** Files that should have been, and were created as the file system chose. */
    long getCreatedAnywhere();

    /** Reads and writes for which the daemon gave a turn. */
    long getTurns();

    /** Reads and writes that went ahead without a turn, because the daemon does not enforce or did not answer. */
    long getTurnsPassed();

    /** Reads and writes for which nobody was asked, because the server is not known or there is no daemon. */
    long getTurnsNotAsked();
}
