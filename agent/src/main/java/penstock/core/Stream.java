package penstock.core;

import java.io.File;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/**
 * A file that is being read, written or sent. One thread of the host moves the
 * position, the client's thread moves the mark; the two meet in volatile fields
 * and never in a lock. Positions are offsets in the file, in bytes.
 *
 * <p>The host's side either waits in a thread ({@link Gates#pass}), or it is an event
 * loop, which must not: then the stream has a callback, which the client's thread
 * runs once after each {@link Gates#mayPass} that said no, when it is worth asking
 * again.
 */
public final class Stream {
    /** The field that weaving adds to the objects that carry their stream. */
    public static final String FIELD = "penstock$stream";
    /** No MARK has come yet: not even the meta file may be touched. */
    static final long NO_MARK = -1;

    final int id;
    /** Whether a daemon was connected when it began. */
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

    /** Its place among the client's beats; that of all devices until its own is known. */
    volatile int device = Beats.ALL;
    volatile boolean refused;
    volatile long position;
    volatile boolean failed;
    volatile long mark = NO_MARK;
    private volatile Thread waiter;
    /** Null for a stream that a thread waits for. */
    private final Runnable again;
    /** Whether the callback is due at the next change. */
    private final AtomicBoolean held = new AtomicBoolean();
    /** When the event loop was first told to wait, in System.nanoTime(); 0 when it may go on. */
    volatile long heldSince;
    private final AtomicBoolean closed = new AtomicBoolean();

    /** Whether the client's queue holds this stream; it never holds one twice. */
    final AtomicBoolean queued = new AtomicBoolean();
    /** The position that the Hadoop thread last reported; only that thread uses it. */
    long reported;
    /** When a write's last packet was written, or up to a beat before, in System.nanoTime(); 0 before the first. */
    long written;
    /** The connection that has seen OPEN, and the position sent on it; client thread only. */
    long session;
    long sent;

    Stream(int id, boolean prompt, boolean write, int kind, String flow, File block, File meta, Peer peer, long from,
            long to, Patience patience, boolean refusable, Runnable again) {
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
        this.refusable = refusable;
        this.position = from;
        this.reported = from;
    }

    boolean hasCallback() {
        return again != null;
    }

    boolean isClosed() {
        return closed.get();
    }

    /** True for the first of several closes: DataNode threads close twice, or in two threads. */
    boolean close() {
        return closed.compareAndSet(false, true);
    }

    /** The daemon's last word holds: a mark may sink when a stream is to be governed again. */
    void mark(long to) {
        mark = to;
        wake();
    }

    /** The daemon will not have it. Past the point where it could be refused, it waits on. */
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

    /** To be called before the condition is looked at, so that no wake-up is lost. */
    void hold() {
        held.set(true);
    }

    /** The event loop goes on, or is done; a callback that is already on its way is for nothing. */
    void letGo() {
        held.set(false);
    }

    boolean isHeld() {
        return held.get();
    }

    /** To be called before the condition is looked at, so that no wake-up is lost. */
    void waiting(Thread thread) {
        waiter = thread;
    }
}
