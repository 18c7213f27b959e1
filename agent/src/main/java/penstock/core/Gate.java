package penstock.core;


/** Gates for code that Hadoop calls: the I/O continues after any failure here. A stream may be null. */
public final class Gate {
    private Gate() { }

    /** Reports the thread's position, and returns when the mark has reached need, or gates are open. */
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

    /** Reports the position of the stream's writer or reader without a wait. */
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

    /** Called before the stream's file is renamed: waits until the daemon has opened it. */
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
            // Even the count or the log failed: ignored.
        }
    }
}
