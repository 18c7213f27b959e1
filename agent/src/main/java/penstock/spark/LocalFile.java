package penstock.spark;

import penstock.core.Gate;
import penstock.core.Stream;
import penstock.core.Window;


/**
 * One governed file in the hands of its one reader or writer. It hangs on the object of
 * Spark's that does the I/O, in a field that weaving adds, or on one of ours.
 */
public final class LocalFile {
    private final Stream stream;
    private final Window window;
    private long position;
    private Unclosed unclosed;

    private LocalFile(Stream stream, Window window, long position) {
        this.stream = stream;
        this.window = window;
        this.position = position;
    }

    static LocalFile written(Stream stream, long position) {
        return new LocalFile(stream, null, position);
    }

    static LocalFile read(Window window) {
        return new LocalFile(null, window, 0);
    }

    /** Waits while what is written has reached the mark. */
    public void before() {
        if (stream == null) {
            return;
        }
        if (LocalFiles.mayWait()) {
            Gate.pass(stream, position, position + 1);
        } else {
            Gate.passed(stream, position);
        }
    }

    /** So many bytes more have been handed to the file. */
    public void wrote(long count) {
        position += count;
    }

    /** So far the file has been written. */
    void at(long end) {
        position = end;
    }

    /** It is about to get another name, for which the daemon must have opened it; waits no longer than that. */
    void renamed(long atMostNanos) {
        if (LocalFiles.mayWait()) {
            Gate.opened(stream, atMostNanos);
        }
    }

    /** Waits until that part of the file may be read, as far as it reaches. */
    public void before(long from, long count) {
        if (window != null && LocalFiles.mayWait()) {
            try {
                window.read(from, count);
            } catch (Throwable t) {
                Gate.failed(t);
            }
        }
    }

    /** Closes it, if nobody has, when its reader is no more. */
    void closeAfter(Object reader) {
        unclosed = new Unclosed(reader, this);
    }

    /** May be called twice. */
    public void close(boolean failed) {
        if (unclosed != null) {
            unclosed.done();
        }
        if (stream != null) {
            Gate.close(stream, position, failed);
        } else {
            try {
                window.close();
            } catch (Throwable t) {
                Gate.failed(t);
            }
        }
    }
}
