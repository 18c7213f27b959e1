package penstock.shuffle;

import java.io.File;
import java.lang.reflect.Field;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import penstock.core.Gates;
import penstock.core.LocalDirectories;
import penstock.core.Peer;
import penstock.core.Stream;

/**
 * Decides when the next part of a map output may be sent: when the daemon has staged the part from the disk, and the
 * network stream's mark allows it. Only the connection's event loop uses a MapOutput. This class knows no netty: Hadoop
 * 3.3 and earlier have version 3, and later ones version 4, which has other classes.
 */
public final class MapOutput {
    /**
     * The daemon's quantum on a network, so that a part is sent and reported while the
     * next ones are being allowed.
     */
    static final int PART = 256 << 10;
    /** The name of our handler in a connection's pipeline. */
    static final String HANDLER = "penstock";
    /** The shortest part, except for the last one: a system call for fewer bytes is too expensive. */
    static final int SHORT = 64 << 10;

    /** Runs an action in the connection's event loop, and then requests the next part. */
    private final Executor loop;
    private final String path;
    private final long start;
    private final long length;
    private final Peer peer;
    private final Stream disk;
    /** Opened with the first part: an output that waits behind another one needs no permission to send yet. */
    private Stream network;
    private boolean begun;
    private boolean broken;

    private MapOutput(String path, long start, long length, Peer peer, Executor loop) {
        this.loop = loop;
        this.path = path;
        this.start = start;
        this.length = length;
        this.peer = peer;
        this.disk = open(false, Gates.INTERMEDIATE, start, start + length);
    }

    /** Returns the connection's two ends. */
    static Peer peer(Object remote, Object local) {
        return Peer.of(String.valueOf(remote), String.valueOf(local), "");
    }

    /**
     * Returns null if the output is not governed: no agent, too many streams, or nothing to send.
     *
     * @param loop runs an action in the connection's event loop, and then requests the next part
     */
    static MapOutput open(String path, long start, long length, Peer peer, Executor loop) {
        if (length <= 0 || start < 0 || Gates.installed() == null) {
            return null;
        }
        MapOutput output = new MapOutput(path, start, length, peer, loop);
        return output.disk == null ? null : output;
    }

    private Stream open(boolean write, int kind, long from, long to) {
        return Gates.open(write, kind, LocalDirectories.flow(path), new File(path), peer, from, to, this::resume);
    }

    long length() {
        return length;
    }

    /** Requests the next part again, soon and in the event loop. Never throws. */
    void resume() {
        later(() -> { });
    }

    /** Runs the action {@code first}, and then requests the next part. */
    void later(Runnable first) {
        try {
            loop.execute(first);
        } catch (RejectedExecutionException e) {
            // The event loop is shutting down, and closes its connections.
        }
    }

    /**
     * Returns how many bytes may be sent now, after the given number of sent bytes; at most {@link #PART}. If it
     * returns 0, {@link #resume} is called when another call may return more.
     */
    int next(long sent) {
        long rest = length - sent;
        long most = Math.min(rest, PART);
        if (broken) {
            return (int) most;
        }
        try {
            if (!begun) {
                begun = true;
                network = open(true, Gates.NETWORK, 0, length);
            }
            // The bytes must be in the page cache, otherwise the event loop would wait for a disk.
            long least = Math.min(rest, SHORT);
            long position = start + sent;
            if (!Gates.mayPass(disk, position, position + least)
                    || network != null && !Gates.mayPass(network, sent, sent + 1)) {
                return 0;
            }
            long allowed = Gates.reach(disk) - position;
            if (network != null) {
                allowed = Math.min(allowed, Gates.reach(network) - sent);
            }
            return (int) Math.min(most, Math.max(least, allowed));
        } catch (Throwable t) {
            Gates.failed(t);
            broken = true;
            return (int) most;
        }
    }

    /** Ends the output, whether it was sent or not. Never throws. */
    void close(long sent) {
        try {
            Gates.close(disk, start + sent, sent < length);
            Gates.close(network, sent, sent < length);
        } catch (Throwable t) {
            Gates.failed(t);
        }
    }

    /** Returns the value of a private field of Hadoop's; the weaver has checked that the field exists. */
    static Object field(Class<?> type, Object of, String name) throws ReflectiveOperationException {
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }
}
