package penstock.sharedfs.layout;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Finds the hosts of files' data. It remembers placements, asks for many files at a time, and never fails: without an
 * answer, a file has no locality.
 *
 * <p>Asking costs a process, and Hadoop asks for one file at a time. But before it asks, it lists the folder. So the
 * question for one file also asks for those listed after it.
 *
 * <p>A file system that hangs would hold each question until its time-out, and a job may have 100,000 files. So after a
 * failure nothing is asked for a while. Threads ask in turns: a thread that waits usually finds its answer in the
 * batch of the one before.
 */
public final class Locator {
    /** The most files of one question. */
    static final int BATCH = 100;
    /** The most characters of one question's paths: the kernel's bound on arguments is 2 MiB. */
    private static final int BATCH_CHARS = 256 << 10;
    /** The most names of servers in the cache. */
    private static final int MAX_NAMES = 1 << 20;
    /** The most folders whose listing is remembered, and the most files of each. */
    private static final int MAX_LISTINGS = 16;
    private static final int MAX_LISTED = 10_000;
    private static final long PAUSE_NANOS = TimeUnit.SECONDS.toNanos(10);
    private static final long WARNING_NANOS = TimeUnit.MINUTES.toNanos(1);
    private static final Logger LOG = LoggerFactory.getLogger(Locator.class);

    private final Layout layout;
    private final Hosts hosts;
    private final int maxFiles;
    private final long maxAgeNanos;
    private final boolean near;
    private final LongSupplier nanos;
    private final Object asking = new Object();

    // The following are guarded by this.
    private final Map<String, Known> cache = new LinkedHashMap<>(16, 0.75f, true);
    private int names;
    private final Map<String, List<File>> listings = new LinkedHashMap<>(16, 0.75f, true);
    private final Pause asks = new Pause();
    private final Pause creations = new Pause();
    private boolean warned;
    private long warnedAt;
    private long unwarned;

    /**
     * @param maxFiles the most files to remember
     * @param maxAgeNanos how long a placement is remembered; meanwhile a file may be moved
     * @param near whether files are created near their writers
     * @param nanos a clock
     */
    Locator(Layout layout, Hosts hosts, int maxFiles, long maxAgeNanos, boolean near, LongSupplier nanos) {
        this.layout = layout;
        this.hosts = hosts;
        this.maxFiles = maxFiles;
        this.maxAgeNanos = maxAgeNanos;
        this.near = near;
        this.nanos = nanos;
    }

    /** A version of a file. A file with another length or time of change is asked for again. */
    public static final class File {
        private final String path;
        private final long length;
        private final long modified;

        /** @param path absolute and local */
        public File(String path, long length, long modified) {
            this.path = path;
            this.length = length;
            this.modified = modified;
        }

        /** Returns the version of a growing file when it has that length. */
        public File at(long now) {
            return new File(path, now, modified);
        }
    }

    private static final class Known {
        private final File file;
        private final Placement placement;
        private final long since;

        Known(File file, Placement placement, long since) {
            this.file = file;
            this.placement = placement;
            this.since = since;
        }
    }

    /** The time after a failure in which nothing is tried. */
    private final class Pause {
        private boolean failed;
        private long since;

        boolean lasts() {
            synchronized (Locator.this) {
                return failed && nanos.getAsLong() - since < PAUSE_NANOS;
            }
        }

        void begin() {
            synchronized (Locator.this) {
                failed = true;
                since = nanos.getAsLong();
            }
        }
    }

    /** Returns the size of blocks that suits the layout. */
    public long blockSize() {
        return layout.blockSize();
    }

    /** Remembers that the files of the folder were listed, and will probably be asked for. */
    public synchronized void listed(String folder, List<File> files) {
        listings.put(folder, files.size() <= MAX_LISTED ? files : new ArrayList<>(files.subList(0, MAX_LISTED)));
        if (listings.size() > MAX_LISTINGS) {
            removeEldest(listings);
        }
    }

    /** Returns the hosts that have most of the bytes from start to end; none if that is not known. */
    public String[] hosts(Placement placement, long start, long end) {
        Set<String> found = new LinkedHashSet<>();
        for (String server : placement.majority(start, end)) {
            found.add(hosts.of(server));
        }
        return found.toArray(new String[0]);
    }

    /**
     * Returns the server from which a reader on this machine probably reads the bytes from start to end: this
     * machine's, or else the first that has most of them. Returns null if that is not known.
     */
    public String server(Placement placement, long start, long end) {
        String first = null;
        for (String server : placement.majority(start, end)) {
            if (hosts.isLocal(server)) {
                return hosts.of(server);
            }
            first = first == null ? hosts.of(server) : first;
        }
        return first;
    }

    /** Asks for the layouts of all files that are not known, in few questions. */
    public void prepare(List<File> files) {
        List<File> unknown = new ArrayList<>();
        for (File file : files) {
            if (known(file) == null) {
                unknown.add(file);
            }
        }
        synchronized (asking) {
            for (int i = 0, end; i < unknown.size() && !asks.lasts(); i = end) {
                int chars = 0;
                for (end = i; end < unknown.size() && end < i + BATCH && (end == i || chars < BATCH_CHARS); end++) {
                    chars += unknown.get(end).path.length();
                }
                ask(unknown.subList(i, end));
            }
        }
    }

    /** Returns the placement of the file. */
    public Placement placement(File file) {
        Placement known = known(file);
        if (known != null) {
            Counts.THIS_JVM.remembered.increment();
            return known;
        }
        synchronized (asking) {
            known = known(file);
            if (known != null) {
                Counts.THIS_JVM.remembered.increment();
                return known;
            }
            if (asks.lasts()) {
                Counts.THIS_JVM.notAsked.increment();
                return Placement.NONE;
            }
            ask(batch(file));
            known = known(file);
            return known == null ? Placement.NONE : known;
        }
    }

    private void ask(List<File> files) {
        List<String> paths = new ArrayList<>();
        for (File each : files) {
            if (isSafe(each.path)) {
                paths.add(each.path);
            }
        }
        Counts.THIS_JVM.asked.add(files.size());
        Map<String, Placement> placements = Collections.emptyMap();
        if (!paths.isEmpty()) {
            try {
                placements = layout.ask(paths);
            } catch (IOException | RuntimeException e) {
                Counts.THIS_JVM.failures.increment();
                Counts.THIS_JVM.unanswered.add(files.size());
                asks.begin();
                warn("no locality for " + files.get(0).path + " and " + (files.size() - 1) + " other files: "
                    + e.getMessage());
                return;
            }
        }
        long now = nanos.getAsLong();
        for (File each : files) {
            Placement placement = placements.get(each.path);
            if (placement == null) {
                Counts.THIS_JVM.unanswered.increment();
                warn("no locality for " + each.path + ": the file system's tool gave no valid answer");
                placement = Placement.NONE;
            }
            remember(new Known(each, placement, now));
        }
    }

    /** Reports whether the path is on one line of an answer. */
    private static boolean isSafe(String path) {
        for (int i = 0; i < path.length(); i++) {
            if (Character.isISOControl(path.charAt(i))) {
                return false;
            }
        }
        return true;
    }

    /** Returns the file, and those that were listed after it and are not known. */
    private synchronized List<File> batch(File file) {
        List<File> batch = new ArrayList<>();
        batch.add(file);
        int chars = file.path.length();
        List<File> listed = listings.get(file.path.substring(0, Math.max(0, file.path.lastIndexOf('/'))));
        boolean after = false;
        for (File each : listed == null ? Collections.<File>emptyList() : listed) {
            if (each.path.equals(file.path)) {
                after = true;
            } else if (after && each.length > 0 && known(each) == null) {
                chars += each.path.length();
                if (batch.size() == BATCH || chars > BATCH_CHARS) {
                    break;
                }
                batch.add(each);
            }
        }
        return batch;
    }

    private synchronized Placement known(File file) {
        Known known = cache.get(file.path);
        boolean good = known != null && known.file.length == file.length && known.file.modified == file.modified
            && nanos.getAsLong() - known.since <= maxAgeNanos;
        return good ? known.placement : null;
    }

    private synchronized void remember(Known known) {
        Known old = cache.put(known.file.path, known);
        names += known.placement.weight() - (old == null ? 0 : old.placement.weight());
        // The newest stays, even if it is larger than the bound: the file in question needs it now.
        while (cache.size() > maxFiles || names > MAX_NAMES && cache.size() > 1) {
            names -= removeEldest(cache).placement.weight();
        }
    }

    private static <V> V removeEldest(Map<String, V> map) {
        Iterator<V> values = map.values().iterator();
        V eldest = values.next();
        values.remove();
        return eldest;
    }

    /** Logs the warning, at most once a minute. */
    private void warn(String message) {
        long left;
        synchronized (this) {
            long now = nanos.getAsLong();
            if (warned && now - warnedAt < WARNING_NANOS) {
                unwarned++;
                return;
            }
            warned = true;
            warnedAt = now;
            left = unwarned;
            unwarned = 0;
        }
        LOG.warn("{}{}", message.replaceAll("\\p{Cntrl}", "?"),
            left == 0 ? "" : " (and " + left + " warnings since the last one)");
    }

    /** Reports whether files are to be created near their writers. */
    public boolean createsNear() {
        return near;
    }

    /** Creates the empty file near this process, and reports whether it could. If not, nothing is at the path. */
    public boolean createNear(String file) {
        if (creations.lasts()) {
            Counts.THIS_JVM.createdAnywhere.increment();
            return false;
        }
        try {
            if (!isSafe(file)) {
                throw new IOException("its name has control characters");
            }
            layout.createNear(file);
            Counts.THIS_JVM.createdNear.increment();
            return true;
        } catch (IOException | RuntimeException e) {
            Counts.THIS_JVM.createdAnywhere.increment();
            creations.begin();
            warn(file + " is not created near its writer: " + e.getMessage());
            try {
                Files.deleteIfExists(Paths.get(file));
            } catch (IOException left) {
                warn("cannot delete " + file + ": " + left.getMessage());
            }
            return false;
        }
    }
}
