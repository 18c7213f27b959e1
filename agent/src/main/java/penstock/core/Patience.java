package penstock.core;

/**
 * How long a stream's client bears one wait. The daemon hears the shorter time and lets
 * something through by then; the longer one is the gate's own, and ends shortly before
 * the client would give up.
 */
public final class Patience {
    /** HDFS's own {@code dfs.client.socket-timeout}. Tasks and reducers bear more. */
    static final long USUAL_MILLIS = 60_000;
    /** HDFS's own {@code dfs.datanode.ec.reconstruction.stripedread.timeout.millis}. */
    static final long STRIPED_MILLIS = 5_000;
    public static final Patience USUAL = of(USUAL_MILLIS);
    static final Patience STRIPED = of(STRIPED_MILLIS);
    private static final long MOST_MILLIS = 3_600_000;

    /** What the daemon hears. */
    final int millis;
    /** When the gate opens, whatever the daemon does. */
    final long ceilingNanos;

    Patience(int millis, long ceilingNanos) {
        this.millis = millis;
        this.ceilingNanos = ceilingNanos;
    }

    /**
     * Of a client with that time-out: three quarters of it, but 2 s less than all of it (and half of
     * one under 4 s), since a device needs time to answer as well. The ceiling is eleven twelfths,
     * but half a second less. A time-out of 0 or below never ends, and counts as the usual one.
     */
    static Patience of(long timeoutMillis) {
        long all = timeoutMillis <= 0 ? USUAL_MILLIS : Math.min(timeoutMillis, MOST_MILLIS);
        long announced = Math.max(all / 2, Math.min(all * 3 / 4, all - 2000));
        long ceiling = Math.max(announced, Math.min(all - all / 12, all - 500));
        return new Patience((int) announced, ceiling * 1_000_000);
    }

    static Patience shorter(Patience a, Patience b) {
        return a.ceilingNanos <= b.ceilingNanos ? a : b;
    }
}
