package penstock.core;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * Times of the last heartbeat in which each of the daemon's devices lived, by the device's number in the WELCOME. A
 * further entry is the time of the last heartbeat in which all devices lived, for streams without a known device. The
 * client's thread writes, the host's threads read.
 */
public final class Beats {
    /**
     * Gates open within a second after the last heartbeat; there are four heartbeats per second. The rest of the second
     * is for a thread to wake up on a busy machine.
     */
    static final long LOST_NANOS = TimeUnit.MILLISECONDS.toNanos(900);
    /** The index for all devices together. */
    static final int ALL = Frames.MAX_DEVICE + 1;

    private final AtomicLongArray last = new AtomicLongArray(ALL + 1);
    /** A bit for each device on which this connection has directories. */
    private volatile long used;
    /** A bit for each device that is free, as of the last heartbeat. */
    private volatile long free;

    /** Starts a connection with its directories' devices; all of them live. */
    void begin(byte[] devices, long now) {
        long all = 0;
        for (byte device : devices) {
            if (device != 0) {
                all |= 1L << device;
            }
        }
        used = all;
        free = 0;
        beat(-1L, 0, now);
    }

    /** Records a heartbeat, with a bit for each living device and a bit for each free device. */
    void beat(long alive, long freeNow, long now) {
        free = freeNow;
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

    /** Nanoseconds until the device's gates open without a further heartbeat; 0 or less if they are open. */
    long left(int device, long now) {
        return last.get(device) + LOST_NANOS - now;
    }

    /** Whether the device is free, by a heartbeat that is not too old. */
    boolean isFree(int device, long now) {
        long needed = device == ALL ? used : 1L << device;
        return needed != 0 && (free & needed) == needed && left(device, now) > 0;
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

    /** Nanoseconds until the gates of the next device open; Long.MAX_VALUE if all are open. */
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
