package penstock.core;

import java.util.List;

/** What JMX shows as {@code penstock:type=Agent}. */
public interface AgentMXBean {
    /** "woven", or "out: " and the reason. */
    String getState();

    /** The methods that the agent has advised. */
    List<String> getWovenMethods();

    /** What this Hadoop lacks; if anything, nothing is woven. */
    List<String> getMissing();

    /** Whether the daemon has answered on the present connection. */
    boolean isConnected();

    /** off, observe or enforce; off while not connected. */
    String getMode();

    int getStreamsOpen();

    /** Waits that a thread has begun, and ended. */
    long getGateWaits();

    long getGateWaitNanos();

    /** Waits that ended shortly before the client would give up: the daemon, though alive, did not raise the mark. */
    long getGateBackstops();

    /** Waits that ended because the daemon had gone or said nothing for a second. */
    long getOrphanedWaits();

    /** The longest of them, from the daemon's last sign of life on. */
    long getOrphanedWaitNanosLongest();

    /** The longest of them in the daemon's latest absence that made anybody wait. */
    long getOrphanedWaitNanosLatest();

    /** Waits that ended because their device stood still in a daemon that lives. */
    long getStalledWaits();

    /** How often a device was found to stand still in a daemon that lives. */
    long getDeviceStalls();

    /** Reads that ended with an error before any data was moved: their flow had too many waiting here. */
    long getRefusedReads();

    /** Connections that ended or did not come about; the log has each kind of failure once. */
    long getConnectionFailures();

    /** Streams that went ungoverned: too many, or with a path that no frame can hold. */
    long getFailedOpen();

    /** Streams that are unattributed because their flow had as many as one may have. */
    long getOverBound();

    /** Map outputs that a NodeManager sent as if there were no agent. */
    long getShuffleUngoverned();

    long getReconnects();

    /** Closes that no daemon heard of. */
    long getFramesDropped();

    /** Exceptions in the agent's own code, kept away from Hadoop. */
    long getSuppressed();
}
