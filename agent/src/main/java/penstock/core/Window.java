package penstock.core;

import java.io.File;

/**
 * The range of a file that is announced for a reader. The reader may stop anywhere: a merge opens a file with the
 * segments of many partitions and reads one segment. So the range is announced piece by piece, each piece as a stream.
 * The first piece is short. Each further piece is twice as long as the one before, and is announced when half of the
 * one before has been read. The announced range extends beyond a segment's end by up to 1.7 times the segment's length.
 * In a map's merge the reader continues there, with the next partition's segment. A seek out of the window starts
 * again.
 *
 * <p>Like the reader's position, a window is not for concurrent use.
 */
public final class Window {
    public static final long MIN = 256 << 10;
    static final long MAX = 4 << 20;
    /**
     * A read longer than this is split into steps of this many bytes, and its position is reported before each step,
     * because the daemon stages only a quantum or two ahead of the reported position.
     */
    public static final int STEP = 64 << 10;

    private final Opener opener;
    private final File file;
    private final long length;
    private Stream now;
    private long from;
    private long to = -1;
    private Stream next;
    private long nextTo = -1;
    private long size;
    private long reached;

    public Window(Opener opener, File file, long length) {
        this.opener = opener;
        this.file = file;
        this.length = length;
    }

    /** Waits until [position, position + count) may be read, up to the file's end. */
    public void read(long position, long count) {
        long end = Math.min(position + count, length);
        if (position < 0 || position >= end) {
            return;
        }
        if (to < 0 || position < from || position > to) {
            close();
            size = MIN;
            to = position;
        }
        reached = position;
        while (reached < end) {
            if (reached >= to) {
                advance();
            }
            if (nextTo < 0 && to < length && reached - from >= (to - from) / 2) {
                nextTo = Math.min(length, to + size);
                next = opener.open(false, file, to, nextTo);
                size = Math.min(MAX, 2 * size);
            }
            long step = Math.min(Math.min(reached + STEP, end), to);
            Gate.pass(now, reached, step);
            reached = step;
        }
    }

    /** Moves to the next window, which may have been announced already. */
    private void advance() {
        Gate.close(now, to, false);
        from = to;
        if (nextTo >= 0) {
            now = next;
            to = nextTo;
        } else {
            to = Math.min(length, from + size);
            now = opener.open(false, file, from, to);
            size = Math.min(MAX, 2 * size);
        }
        next = null;
        nextTo = -1;
    }

    public void close() {
        Gate.close(now, reached, false);
        Gate.close(next, to, false);
        now = null;
        next = null;
        to = -1;
        nextTo = -1;
    }

    /** Announces a range that is read as a whole, by any thread, as its own stream. */
    public static Stream announce(Opener opener, File file, long from, long to) {
        return opener.open(false, file, from, to);
    }

    /** Waits until the whole range is staged, and closes its stream. */
    public static void await(Stream stream, long from, long to) {
        for (long at = from; at < to; at += STEP) {
            Gate.pass(stream, at, Math.min(at + STEP, to));
        }
        Gate.close(stream, to, false);
    }
}
