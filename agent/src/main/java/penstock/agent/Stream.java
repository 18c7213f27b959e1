package penstock.agent;

import java.io.File;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/**
 * A block file that is being read or written. One Hadoop thread moves the
 * position, the client's thread moves the mark; the two meet in volatile fields
 * and never in a lock. Positions are offsets in the block file, in bytes.
 */
public final class Stream {
    /** No MARK has come yet: not even the meta file may be touched. */
    static final long NO_MARK = -1;

    final int id;
    /** Whether a daemon was there to be told when it began. */
    final boolean prompt;
    final boolean write;
    final String flow;
    final String block;
    final String meta;
    final long from;
    final long to;

    volatile long position;
    volatile boolean failed;
    volatile long mark = NO_MARK;
    private volatile Thread waiter;
    private final AtomicBoolean closed = new AtomicBoolean();

    /** Whether the client's queue holds this stream; it never holds one twice. */
    final AtomicBoolean queued = new AtomicBoolean();
    /** The position that the Hadoop thread last reported; only that thread uses it. */
    long reported;
    /** The connection that has seen OPEN, and the position it was told; client thread only. */
    long session;
    long sent;

    Stream(int id, boolean prompt, boolean write, String flow, File block, File meta, long from, long to) {
        this.id = id;
        this.prompt = prompt;
        this.write = write;
        this.flow = flow;
        this.block = block.getPath();
        this.meta = meta == null ? "" : meta.getPath();
        this.from = from;
        this.to = to;
        this.position = from;
        this.reported = from;
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

    void wake() {
        Thread thread = waiter;
        if (thread != null) {
            LockSupport.unpark(thread);
        }
    }

    /** To be called before the condition is looked at, so that no wake-up is lost. */
    void waiting(Thread thread) {
        waiter = thread;
    }
}
