package penstock.sharedfs.turns;

import penstock.sharedfs.layout.Locator;
import penstock.sharedfs.layout.Placement;

/**
 * Takes turns for one open file. The layout is asked for at the first turn. A file that is written grows into ranges
 * that did not exist before, so its layout is asked for again once in each block.
 */
public final class FileTurns {
    private final Turns turns;
    private final Locator.File file;
    private final boolean write;
    private Placement placement;
    /** The position at which the layout is asked for again. */
    private long again;

    /** @param file the version that was opened; for a new file, of length 0 */
    public FileTurns(Turns turns, Locator.File file, boolean write) {
        this.turns = turns;
        this.file = file;
        this.write = write;
    }

    /** Returns the maximum number of bytes of a turn. */
    public int most() {
        return turns.most();
    }

    /** Reports whether written bytes must be on the server's disk before their turn ends. */
    public boolean sync() {
        return turns.sync();
    }

    /** Waits for a turn for the bytes. Small reads and writes do not wait. */
    public Turns.Turn take(long position, int bytes) {
        if (bytes < Turns.LEAST) {
            return Turns.Turn.NONE;
        }
        return turns.take(write, server(position, position + bytes), bytes);
    }

    private synchronized String server(long start, long end) {
        Locator locator = turns.locator();
        if (!write) {
            placement = placement == null ? locator.placement(file) : placement;
        } else if (start >= again) {
            // The version differs each time, so that the answer is new.
            placement = locator.placement(file.at(start));
            String server = locator.server(placement, start, end);
            // Not at the beginning of the next block, which is still empty. A file system may also know a new file's
            // server only after a while.
            again = server == null ? Math.max(2 * start, start + 4 * Turns.MOST)
                : (start / locator.blockSize() + 1) * locator.blockSize() + Turns.MOST;
            return server;
        }
        return locator.server(placement, start, end);
    }
}
