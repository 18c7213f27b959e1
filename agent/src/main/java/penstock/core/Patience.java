package penstock.core;

/**
 * The longest acceptable wait of a stream's client. The daemon receives the shorter time, and lets a packet pass by
 * then. The longer time is the gate's own limit, shortly before the client would give up.
 */
public final class Patience {
    /** HDFS's default of {@code dfs.client.socket-timeout}. Tasks and reducers wait longer. */
    static final long USUAL_MILLIS = 60_000;
    /** HDFS's default of {@code dfs.datanode.ec.reconstruction.stripedread.timeout.millis}. */
    static final long STRIPED_MILLIS = 5_000;
    public static final Patience USUAL = of(USUAL_MILLIS);
    static final Patience STRIPED = of(STRIPED_MILLIS);
    private static final long MOST_MILLIS = 3_600_000;

    /** The patience that the daemon receives, in milliseconds. */
    final int millis;
    /** The wait after which the gate opens in any case. */
    final long ceilingNanos;

    Patience(int millis, long ceilingNanos) {
        this.millis = millis;
        this.ceilingNanos = ceilingNanos;
    }

    /**
     * Returns the patience of a client with the given time-out. It is three quarters of the time-out, but at least 2 s
     * less than the time-out (for time-outs under 4 s: half of the time-out), because a device also needs time to
     * answer. The ceiling is eleven twelfths, and at least half a second less than the time-out. With a time-out of 0
     * or below the client waits for ever; the usual time-out is used.
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
