package penstock.core;


/** Gates for code that Hadoop calls: whatever fails there, the I/O goes on. A stream may be null. */
public final class Gate {
    private Gate() { }

    /** The thread stands at position and goes on when the mark has reached need, or gates are open. */
    public static void pass(Stream stream, long position, long need) {
        if (stream == null) {
            return;
        }
        try {
            Gates.pass(stream, position, need);
        } catch (Throwable t) {
            failed(t);
        }
    }

    /** The stream's writer or reader is at position, and must not wait. */
    public static void passed(Stream stream, long position) {
        if (stream == null) {
            return;
        }
        try {
            Gates.passed(stream, position);
        } catch (Throwable t) {
            failed(t);
        }
    }

    /** The stream's file is about to get another name, and the daemon should have opened it by then. */
    public static void opened(Stream stream, long atMostNanos) {
        if (stream == null) {
            return;
        }
        try {
            Gates.opened(stream, atMostNanos);
        } catch (Throwable t) {
            failed(t);
        }
    }

    public static void close(Stream stream, long position, boolean failed) {
        if (stream == null) {
            return;
        }
        try {
            Gates.close(stream, position, failed);
        } catch (Throwable t) {
            failed(t);
        }
    }

    public static void failed(Throwable t) {
        try {
            Gates.failed(t);
        } catch (Throwable again) {
            // Not even that: then without a word.
        }
    }
}
