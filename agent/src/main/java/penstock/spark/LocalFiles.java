package penstock.spark;

import java.io.File;
import java.io.InputStream;
import java.nio.channels.FileChannel;
import java.nio.channels.WritableByteChannel;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.SparkEnv;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import penstock.core.Canonical;
import penstock.core.Gate;
import penstock.core.Gates;
import penstock.core.Names;
import penstock.core.Opener;
import penstock.core.Peer;
import penstock.core.Role;
import penstock.core.Stream;
import penstock.core.Window;

/**
 * The local files of this executor: spills, shuffle files and cached blocks of its application. The plug-in and the
 * instrumented methods of Spark call this class, whose methods never throw.
 *
 * <p>Files below the directories of Spark's disk manager are governed. Nothing is governed until these directories are
 * known, or if the process works for no application.
 */
public final class LocalFiles {
    private static final Logger LOG = LoggerFactory.getLogger(LocalFiles.class);
    static final Opener OPENER = LocalFiles::open;
    private static final String FLOW =
            Names.ofProcess(System.getenv("CONTAINER_ID"), System.getProperty(Names.APPLICATION_PROPERTY));
    private static final int PIECE = 1 << 20;
    /** The most readers of spills with staged data ahead of them; each has at most two streams. */
    static final int MAX_AHEAD = 1024;
    /** The sources of copies. A merge copies a part of each of its spills in turn, repeatedly. */
    private static final Map<FileChannel, LocalFile> SOURCES = Collections.synchronizedMap(new WeakHashMap<>());
    /**
     * The file for which an instrumented method is creating a stream. The stream's constructor, which is instrumented
     * too, does not get the file as an argument.
     */
    private static final ThreadLocal<File> OPENING = new ThreadLocal<>();

    /** Canonical paths, with a slash at the end. */
    private static volatile List<String> directories = Collections.emptyList();

    private LocalFiles() { }

    // ---- the process

    /** Called when Spark's disk manager exists. The HELLO to the daemon contains the disk manager's directories. */
    public static void serve(File[] blockManagers) {
        directories(blockManagers);
        if (!directories.isEmpty()) {
            Gates.serve(new ArrayList<>(directories));
        }
    }

    /** Like {@link #serve}, for a process that may have no agent: starts to connect, and does not wait. */
    static void connect(File[] blockManagers, String socket) {
        if (FLOW == null) {
            return;
        }
        try {
            directories(blockManagers);
            String reason = directories.isEmpty() ? null
                    : Gates.connect(socket, Role.EXECUTOR, FLOW, new ArrayList<>(directories), LOG::info);
            if (reason != null) {
                directories = Collections.emptyList();
                LOG.info("local files are not governed: " + reason);
            }
        } catch (Throwable t) {
            directories = Collections.emptyList();
            Gate.failed(t);
        }
    }

    private static void directories(File[] blockManagers) {
        if (FLOW == null || !directories.isEmpty()) {
            return;
        }
        List<String> found = new ArrayList<>();
        try {
            for (File blockManager : blockManagers) {
                Canonical.add(found, blockManager.getCanonicalFile().getParentFile());
            }
        } catch (Throwable t) {
            Gate.failed(t);
        }
        directories = Collections.unmodifiableList(found);
    }

    static String flow() {
        return FLOW;
    }

    // ---- files

    private static Stream open(boolean write, File file, long from, long to) {
        try {
            return Gates.open(write, Gates.INTERMEDIATE, FLOW, file, Peer.UNKNOWN, from, to, null);
        } catch (Throwable t) {
            Gate.failed(t);
            return null;
        }
    }

    /** Returns the file's canonical path, without links, if it is governed; else null. */
    static File governed(File file) {
        List<String> all = directories;
        if (file == null || all.isEmpty()) {
            return null;
        }
        try {
            return Canonical.below(all, file);
        } catch (Throwable t) {
            Gate.failed(t);
            return null;
        }
    }

    /** Returns the writer's side of an open file, from that position on; null if the file is not governed. */
    public static LocalFile writing(File file, long position) {
        File governed = governed(file);
        Stream stream = governed == null ? null : open(true, governed, position, 0);
        return stream == null ? null : LocalFile.written(stream, position);
    }

    /** Returns the reader's side of a file, up to a position; null if the file is not governed. */
    public static LocalFile reading(File file, long end) {
        File governed = governed(file);
        return governed == null ? null : LocalFile.read(new Window(OPENER, governed, end));
    }

    /**
     * Reports whether this thread may wait. Netty's threads may never wait. A thread that moves blocks out of memory
     * may not wait either, because it holds a lock that every task and the executor's heartbeat need. During such a
     * wait the driver would give the executor up.
     */
    static boolean mayWait() {
        SparkEnv env = SparkEnv.get();
        if (env != null && env.memoryManager() != null && Thread.holdsLock(env.memoryManager())) {
            return false;
        }
        for (Class<?> c = Thread.currentThread().getClass(); c != Thread.class; c = c.getSuperclass()) {
            if (c.getName().equals("io.netty.util.concurrent.FastThreadLocalThread")) {
                return false;
            }
        }
        return true;
    }

    // ---- further functions for instrumented methods

    /** Between this call and {@link #opened()}, the thread creates a stream that appends to the file. */
    public static void opening(File file) {
        OPENING.set(file);
    }

    /** Called when the stream has been created, and its file exists. */
    public static LocalFile opened() {
        File file = OPENING.get();
        if (file == null) {
            return null;
        }
        OPENING.remove();
        return writing(file, file.length());
    }

    /** Ends {@link #opening}, also if no stream was created. */
    public static void notOpening() {
        OPENING.remove();
    }

    /**
     * Returns a stream with the same bytes, which are announced in windows. The given stream is at the given offset of
     * the file.
     */
    public static InputStream gated(InputStream in, File file, long offset, long length) {
        Unclosed.closeAll();
        LocalFile read = in == null ? null : reading(file, offset + length);
        return read == null ? in : new GatedInput(in, read, offset);
    }

    /** Returns a channel with a gate before the given one, which writes the file from its beginning. */
    public static WritableByteChannel gated(WritableByteChannel out, File file) {
        LocalFile written = out == null ? null : writing(file, 0);
        return written == null ? out : new GatedChannel(out, written);
    }

    /** Waits until a range that is read or mapped as a whole is staged, if the thread may wait. */
    public static void stage(File file, long from, long length) {
        if (length <= 0 || !mayWait()) {
            return;
        }
        File governed = governed(file);
        if (governed != null) {
            Window.await(open(false, governed, from, from + length), from, from + length);
        }
    }

    /**
     * Waits until the batch [from, to) of a spill may be read. The following batches are staged meanwhile, because the
     * reader reads them next.
     *
     * @param carried the result for the reader's previous batch, or null
     * @param end the end of the last batch
     * @return the file for the reader's next call; null after the last batch
     */
    public static LocalFile batch(LocalFile carried, Object reader, File file, long from, long to, long end) {
        LocalFile ahead = carried;
        if (ahead == null) {
            Unclosed.closeAll();
            if (to >= end || Unclosed.open() >= MAX_AHEAD) {
                stage(file, from, to - from);
                return null;
            }
            ahead = reading(file, end);
            if (ahead == null) {
                return null;
            }
            ahead.closeAfter(reader);
        }
        ahead.before(from, to - from);
        if (to < end) {
            return ahead;
        }
        ahead.close(false);
        return null;
    }

    /** Returns the reader's side of a file from which a copy is made; null if the file is not governed. */
    private static LocalFile source(FileChannel in) {
        LocalFile source = SOURCES.get(in);
        if (source != null || directories.isEmpty()) {
            return source;
        }
        File file = governed(Paths.of(in));
        if (file == null) {
            return null;
        }
        Unclosed.closeAll();
        synchronized (SOURCES) {
            for (FileChannel other : new ArrayList<>(SOURCES.keySet())) {
                if (!other.isOpen()) { // the copy failed
                    SOURCES.remove(other).close(false);
                }
            }
        }
        source = LocalFile.read(new Window(OPENER, file, file.length()));
        source.closeAfter(in);
        SOURCES.put(in, source);
        return source;
    }

    /** Ends a source: it has been copied to its end, or is copied by other means. */
    private static void copied(FileChannel in, LocalFile source) {
        SOURCES.remove(in);
        source.close(false);
    }

    /**
     * Copies all but the last piece of a range from file to file, with gates at both ends. The caller, Spark, would do
     * this in a single copy. Spark copies the rest, so Spark itself gets errors and performs its checks.
     *
     * @return number of bytes copied
     */
    public static long copy(FileChannel in, WritableByteChannel out, long start, long count) {
        LocalFile target = MapOutput.target(out);
        LocalFile source = out instanceof FileChannel ? source(in) : null;
        long done = 0;
        boolean last = true;
        try {
            last = start + count >= in.size();
            while (source != null || target != null) {
                long piece = Math.min(PIECE, count - done);
                if (source != null) {
                    source.before(start + done, piece);
                }
                if (target != null) {
                    target.at(((FileChannel) out).position());
                    target.before();
                }
                long n = count - done <= PIECE ? 0 : in.transferTo(start + done, piece, out);
                if (n <= 0) {
                    break;
                }
                done += n;
            }
        } catch (Throwable t) {
            // The caller gets errors of the files itself when it copies the rest.
            return done;
        } finally {
            if (source != null && last) {
                copied(in, source);
            }
        }
        return done;
    }
}
