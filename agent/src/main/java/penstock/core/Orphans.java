package penstock.core;

import java.util.concurrent.atomic.AtomicReference;

/**
 * The waits that ended because the daemon had gone or fallen silent: the exact
 * price of its death. A wait counts from its start or from the daemon's last sign
 * of life, whichever is later; so a figure is too large by the time that the
 * daemon lived on after its last heartbeat (a quarter of a second at most), and
 * never too small.
 */
public final class Orphans {
    /** What is known so far; replaced whole, since no thread of Hadoop may take a lock here. */
    private static final class Known {
        final long count;
        final long longest;
        /** When the daemon was last heard before its latest absence, and the longest wait in it. */
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

    /** A wait has ended at a time without a daemon. All times are System.nanoTime(). */
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
