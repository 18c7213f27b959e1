package penstock.spark;

import penstock.core.Gate;
import penstock.core.Stream;
import penstock.core.Window;


/**
 * A governed file with its only reader or writer. Spark's object that does the I/O holds it in a field that weaving
 * adds; objects of this package hold it in a field of their own.
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

    /** If the bytes written so far have reached the mark, waits until the mark rises or gates open. */
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

    /** Reports that the given number of further bytes were passed to the file. */
    public void wrote(long count) {
        position += count;
    }

    /** Reports that the file has been written up to end. */
    void at(long end) {
        position = end;
    }

    /** Called before the file is renamed: waits until the daemon has opened it, at most the given nanoseconds. */
    void renamed(long atMostNanos) {
        if (LocalFiles.mayWait()) {
            Gate.opened(stream, atMostNanos);
        }
    }

    /** Waits until that part of the file may be read, up to the file's end. */
    public void before(long from, long count) {
        if (window != null && LocalFiles.mayWait()) {
            try {
                window.read(from, count);
            } catch (Throwable t) {
                Gate.failed(t);
            }
        }
    }

    /** Closes the file when its reader has been garbage-collected, unless the file was closed before. */
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
