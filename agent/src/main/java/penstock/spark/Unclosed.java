package penstock.spark;

import java.lang.ref.PhantomReference;
import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A reader that Spark may drop without closing it: a task that ends early releases its blocks' buffers, and leaves
 * their streams and its spills' readers to the garbage collector. The daemon's resources for such a reader are released
 * when the collector has found it and another reader is opened.
 */
final class Unclosed extends PhantomReference<Object> {
    private static final ReferenceQueue<Object> FOUND = new ReferenceQueue<>();
    /** Keeps the references themselves from being collected. */
    private static final Set<Unclosed> OPEN = ConcurrentHashMap.newKeySet();

    private final LocalFile file;

    /** @param file must not refer to its reader */
    Unclosed(Object reader, LocalFile file) {
        super(reader, FOUND);
        this.file = file;
        OPEN.add(this);
    }

    /** Called when the reader has been closed. */
    void done() {
        OPEN.remove(this);
        clear();
    }

    /** Closes the files of readers that have been collected. */
    static void closeAll() {
        for (Reference<?> r = FOUND.poll(); r != null; r = FOUND.poll()) {
            Unclosed found = (Unclosed) r;
            if (OPEN.remove(found)) {
                found.file.close(false);
            }
        }
    }

    static int open() {
        return OPEN.size();
    }
}
