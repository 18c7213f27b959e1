package penstock.core;

import java.util.concurrent.atomic.AtomicReference;

/**
 * The waits that ended because the daemon had gone or was silent. They are the cost of the daemon's failure. A wait
 * counts from its start or from the daemon's last sign of life, whichever is later. The daemon may have lived for up to
 * a quarter of a second after its last heartbeat. A figure is too large by this time, and never too small.
 */
public final class Orphans {
    /** The figures so far; replaced as a whole, since no thread of Hadoop may take a lock here. */
    private static final class Known {
        final long count;
        final long longest;
        /** Time of the last heartbeat before the daemon's latest absence, and the longest wait in that absence. */
        final long lastHeard;
        final long latest;

        Known(long count, long longest, long lastHeard, long latest) {
            this.count = count;
            this.longest = longest;
            this.lastHeard = lastHeard;
            this.latest = latest;
        }
    }

    private final AtomicReference<Known> known = new AtomicReference<>(new Known(0, 0, 0, 0));

    /** Records a wait that ended without a daemon. All times are System.nanoTime(). */
    void ended(long start, long now, long lastHeard) {
        long nanos = now - Math.max(start, lastHeard);
        known.updateAndGet(k -> new Known(k.count + 1, Math.max(k.longest, nanos), lastHeard,
                k.count > 0 && k.lastHeard == lastHeard ? Math.max(k.latest, nanos) : nanos));
    }

    long count() {
        return known.get().count;
    }

    long longestNanos() {
        return known.get().longest;
    }

    long latestNanos() {
        return known.get().latest;
    }
}
