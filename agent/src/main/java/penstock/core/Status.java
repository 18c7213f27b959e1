package penstock.core;

import java.lang.management.ManagementFactory;
import java.util.Collections;
import java.util.List;
import java.util.function.Supplier;
import javax.management.JMException;
import javax.management.ObjectName;

/** The agent's state, for JMX. */
public final class Status implements AgentMXBean {
    public static final String NAME = "penstock:type=Agent";

    private volatile String state = "out: not started";
    /** Returns the instrumented methods; null while no class is instrumented. */
    private volatile Supplier<List<String>> woven;
    private volatile List<String> missing = Collections.emptyList();
    /** Returns the features that are left out, and why; null until the classes are instrumented. */
    private volatile Supplier<List<String>> leftOut;
    private volatile Client client;

    public void out(String reason, List<String> lacking) {
        missing = Collections.unmodifiableList(lacking);
        woven = null;
        state = "out: " + reason;
    }

    /**
     * @param methods returns the methods that are instrumented at present
     * @param without returns the features that are left out at present, and why
     */
    public void woven(Supplier<List<String>> methods, Supplier<List<String>> without, List<String> lacking, Client c) {
        woven = methods;
        leftOut = without;
        missing = Collections.unmodifiableList(lacking);
        client = c;
        state = "woven";
    }

    /** Registers the MBean, in another thread: this starts JMX, which takes longer than the whole weaving. */
    public void register() {
        Thread thread = new Thread(() -> {
            try {
                ManagementFactory.getPlatformMBeanServer().registerMBean(this, new ObjectName(NAME));
            } catch (JMException | RuntimeException e) {
                Log.say("no MBean: " + e);
            }
        }, "penstock-agent-jmx");
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public String getState() {
        return state;
    }

    private static List<String> now(Supplier<List<String>> of) {
        return of == null ? Collections.<String>emptyList() : of.get();
    }

    @Override
    public List<String> getWovenMethods() {
        return now(woven);
    }

    @Override
    public List<String> getMissing() {
        return missing;
    }

    @Override
    public List<String> getLeftOut() {
        return now(leftOut);
    }

    @Override
    public boolean isConnected() {
        Client c = client;
        return c != null && c.isConnected();
    }

    @Override
    public String getMode() {
        Client c = client;
        return Client.modeName(c == null ? Frames.OFF : c.mode());
    }

    @Override
    public int getStreamsOpen() {
        Client c = client;
        return c == null ? 0 : c.streamsOpen();
    }

    @Override
    public long getGateWaits() {
        return Gates.WAITS.sum();
    }

    @Override
    public long getGateWaitNanos() {
        return Gates.WAIT_NANOS.sum();
    }

    @Override
    public long getGateBackstops() {
        return Gates.BACKSTOPS.sum();
    }

    @Override
    public long getOrphanedWaits() {
        return Gates.ORPHANS.count();
    }

    @Override
    public long getOrphanedWaitNanosLongest() {
        return Gates.ORPHANS.longestNanos();
    }

    @Override
    public long getOrphanedWaitNanosLatest() {
        return Gates.ORPHANS.latestNanos();
    }

    @Override
    public long getStalledWaits() {
        return Gates.STALLED_WAITS.sum();
    }

    @Override
    public long getDeviceStalls() {
        Client c = client;
        return c == null ? 0 : c.stalls();
    }

    @Override
    public long getPassingReads() {
        return Gates.PASSED.sum();
    }

    @Override
    public long getRefusedReads() {
        return Gates.REFUSALS.sum();
    }

    @Override
    public long getConnectionFailures() {
        Client c = client;
        return c == null ? 0 : c.failures();
    }

    @Override
    public long getFailedOpen() {
        return Gates.FAILED_OPENS.sum();
    }

    @Override
    public long getOverBound() {
        return Gates.OVER_BOUND.sum();
    }

    @Override
    public long getShuffleUngoverned() {
        return Gates.SHUFFLE_UNGOVERNED.sum();
    }

    @Override
    public long getReconnects() {
        Client c = client;
        return c == null ? 0 : c.reconnects();
    }

    @Override
    public long getFramesDropped() {
        Client c = client;
        return c == null ? 0 : c.framesDropped();
    }

    @Override
    public long getSuppressed() {
        return Gates.FAILURES.sum();
    }
}
