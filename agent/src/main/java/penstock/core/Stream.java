package penstock.core;

import java.io.File;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/**
 * A file that is being read, written or sent. One thread of the host moves the position, and the client's thread moves
 * the mark. They share volatile fields and no lock. Positions are offsets in the file, in bytes.
 *
 * <p>Either a thread of the host waits ({@link Gates#pass}), or the host uses an event loop, which must not wait. In
 * that case the stream has a callback. The client's thread runs the callback once after each {@link Gates#mayPass} that
 * returned false, when another call may return true.
 */
public final class Stream {
    /** The field that weaving adds to objects for their stream. */
    public static final String FIELD = "penstock$stream";
    /** No MARK has arrived yet: not even the meta file may be read. */
    static final long NO_MARK = -1;

    final int id;
    /** Whether a daemon was connected when the stream began. */
    final boolean prompt;
    final boolean write;
    final int kind;
    final String flow;
    final String block;
    final String meta;
    final Peer peer;
    final long from;
    final long to;
    final Patience patience;
    /** Whether the operation may still end before any data is moved. */
    final boolean refusable;
    /** Whether the stream never waits: a small read that began while its device was free. */
    final boolean passing;

    /** Index of the stream's device in the client's beats; {@link Beats#ALL} until the device is known. */
    volatile int device = Beats.ALL;
    volatile boolean refused;
    volatile long position;
    volatile boolean failed;
    volatile long mark = NO_MARK;
    private volatile Thread waiter;
    /** Null for a stream with a waiting thread. */
    private final Runnable again;
    /** Whether the callback must run when the mark rises or the gate opens. */
    private final AtomicBoolean held = new AtomicBoolean();
    /** Start of the event loop's present wait, in System.nanoTime(); 0 if it does not wait. */
    volatile long heldSince;
    private final AtomicBoolean closed = new AtomicBoolean();

    /** Whether the client's queue holds this stream. The queue never holds a stream twice. */
    final AtomicBoolean queued = new AtomicBoolean();
    /** The position that the Hadoop thread last reported; only that thread uses it. */
    long reported;
    /**
     * Time when a write's last packet was written, or up to one heartbeat earlier, in System.nanoTime(); 0 before the
     * first packet.
     */
    long written;
    /** The connection on which OPEN was sent, and the position sent on it; client thread only. */
    long session;
    long sent;

    Stream(int id, boolean prompt, boolean write, int kind, String flow, File block, File meta, Peer peer, long from,
            long to, Patience patience, boolean refusable, boolean passing, Runnable again) {
        this.id = id;
        this.prompt = prompt;
        this.write = write;
        this.kind = kind;
        this.flow = flow;
        this.block = block.getPath();
        this.meta = meta == null ? "" : meta.getPath();
        this.peer = peer;
        this.again = again;
        this.from = from;
        this.to = to;
        this.patience = patience;
        this.refusable = refusable && !passing;
        this.passing = passing;
        this.position = from;
        this.reported = from;
    }

    boolean hasCallback() {
        return again != null;
    }

    boolean isClosed() {
        return closed.get();
    }

    /** Closes the stream. Returns true for the first call only: a DataNode closes a stream twice, or in two threads. */
    boolean close() {
        return closed.compareAndSet(false, true);
    }

    /**
     * Sets the mark. The daemon's latest MARK applies. It may be lower than the one before if the stream is to be
     * governed again.
     */
    void mark(long to) {
        mark = to;
        wake();
    }

    /** Called when the daemon refuses the operation. An operation that cannot be refused keeps waiting. */
    void refuse() {
        if (refusable) {
            refused = true;
            wake();
        }
    }

    void wake() {
        Thread thread = waiter;
        if (thread != null) {
            LockSupport.unpark(thread);
        }
        if (held.compareAndSet(true, false)) {
            try {
                again.run();
            } catch (Throwable t) {
                Gates.failed(t);
            }
        }
    }

    /** Must be called before the condition is checked, so that no wake-up is lost. */
    void hold() {
        held.set(true);
    }

    /** Called when the event loop continues, or is done. A callback that has already started is then spurious. */
    void letGo() {
        held.set(false);
    }

    boolean isHeld() {
        return held.get();
    }

    /** Must be called before the condition is checked, so that no wake-up is lost. */
    void waiting(Thread thread) {
        waiter = thread;
    }
}
