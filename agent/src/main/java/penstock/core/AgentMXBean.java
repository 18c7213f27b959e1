package penstock.core;

import java.util.List;

/** The MBean {@code penstock:type=Agent}. */
public interface AgentMXBean {
    /** "woven", or "out: " and the reason. */
    String getState();

    /** The methods that the agent has advised. */
    List<String> getWovenMethods();

    /** Symbols that this Hadoop or Spark lacks. */
    List<String> getMissing();

    /** The features that are not instrumented because of these symbols; the others are, unless the state is "out". */
    List<String> getLeftOut();

    /** Whether the daemon has answered on the present connection. */
    boolean isConnected();

    /** off, observe or enforce; off while not connected. */
    String getMode();

    int getStreamsOpen();

    /** Number of waits that have ended. */
    long getGateWaits();

    long getGateWaitNanos();

    /**
     * Waits that ended shortly before the client would give up, because the daemon lived but did not raise the mark.
     */
    long getGateBackstops();

    /** Waits that ended because the daemon had gone, or was silent for a second. */
    long getOrphanedWaits();

    /** The longest orphaned wait, counted from the daemon's last sign of life. */
    long getOrphanedWaitNanosLongest();

    /** The longest orphaned wait in the latest absence of the daemon in which anything waited. */
    long getOrphanedWaitNanosLatest();

    /** Waits that ended because their device was stalled while the daemon lived. */
    long getStalledWaits();

    /** How often a device was found to be stalled while the daemon lived. */
    long getDeviceStalls();

    /** Small reads that did not wait for their marks, because their devices were free. */
    long getPassingReads();

    /** Reads that ended with an error before any data was moved, because their flow had too many waiting reads. */
    long getRefusedReads();

    /** Connections that ended or failed; each kind of failure is logged once. */
    long getConnectionFailures();

    /** Streams that were not governed, because there were too many, or because their path was too long for a frame. */
    long getFailedOpen();

    /** Streams that are unattributed because their flow had reached its maximum. */
    long getOverBound();

    /** Map outputs that a NodeManager sent as if there were no agent. */
    long getShuffleUngoverned();

    long getReconnects();

    /** CLOSE frames that were never sent, because there was no daemon. */
    long getFramesDropped();

    /** Exceptions in the agent's own code, kept away from Hadoop. */
    long getSuppressed();
}
