package penstock.core;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * When each of the daemon's devices was last heard to live, by its number in the
 * WELCOME, and when all of them together: for streams of which no device is known.
 * The client's thread writes, the host's threads read.
 */
public final class Beats {
    /**
     * Gates are open within a second of the last of four heartbeats a second. What is
     * short of that second is for waking up on a busy machine: a wait that lasts to
     * the very end is over a little later.
     */
    static final long LOST_NANOS = TimeUnit.MILLISECONDS.toNanos(900);
    /** The place of all devices. */
    static final int ALL = Frames.MAX_DEVICE + 1;

    private final AtomicLongArray last = new AtomicLongArray(ALL + 1);
    /** The numbers of the devices that this connection has directories on. */
    private volatile long used;

    /** A connection begins, with its directories' devices; all of them live. */
    void begin(byte[] devices, long now) {
        long all = 0;
        for (byte device : devices) {
            if (device != 0) {
                all |= 1L << device;
            }
        }
        used = all;
        beat(-1L, now);
    }

    /** A heartbeat with a bit for each device that lives. */
    void beat(long alive, long now) {
        for (int device = 0; device < ALL; device++) {
            if ((alive >>> device & 1) != 0) {
                last.set(device, now);
            }
        }
        if ((alive & used) == used) {
            last.set(ALL, now);
        }
    }

    long last(int device) {
        return last.get(device);
    }

    /** Nanoseconds for which the device's last beat still lets gates hold; 0 or less if they are open. */
    long left(int device, long now) {
        return last.get(device) + LOST_NANOS - now;
    }

    /** A bit for each device of the connection whose gates are open. */
    long stalled(long now) {
        long stalled = 0;
        for (int device = 0; device < ALL; device++) {
            if (counts(device) && left(device, now) <= 0) {
                stalled |= 1L << device;
            }
        }
        return stalled;
    }

    /** Nanoseconds until the next of them opens its gates; Long.MAX_VALUE if all are open. */
    long untilNext(long now) {
        long next = Long.MAX_VALUE;
        for (int device = 0; device < ALL; device++) {
            long left = left(device, now);
            if (counts(device) && left > 0) {
                next = Math.min(next, left);
            }
        }
        return next;
    }

    private boolean counts(int device) {
        return device == Frames.NETWORK_DEVICE || (used >>> device & 1) != 0;
    }
}
