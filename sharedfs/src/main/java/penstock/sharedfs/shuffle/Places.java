package penstock.sharedfs.shuffle;

import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapred.IndexRecord;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.SpillRecord;
import org.apache.hadoop.mapred.TaskCompletionEvent;
import org.apache.hadoop.mapreduce.CryptoUtils;
import org.apache.hadoop.mapreduce.JobID;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskID;

/**
 * Finds map outputs in the local directories of other nodes.
 *
 * <p>The setting {@link #DIRS} says where each node's local directories lie. Below them, a map output is at
 * {@code usercache/USER/appcache/APPLICATION/output/ATTEMPT/file.out}, as YARN and Hadoop name it; the first four names
 * are those of this task's own local directory. Nothing has to be published, and YARN deletes the files when the
 * application ends.
 */
final class Places {
    /** Setting: local directories of nodes. {host}, {short} and {port} stand for the parts of the address in a map's event. */
    static final String DIRS = "penstock.sharedfs.shuffle.dirs";

    /** Bytes of an index: three numbers for each reduce, and a checksum. */
    private static final int INDEX_RECORD = 24;
    private static final int INDEX_CHECKSUM = 8;
    /** Bytes: an empty map output has two marks of one byte each. */
    private static final int EMPTY = 2;
    /** Bytes of the checksum behind the records. */
    private static final int CHECKSUM = 4;
    /** The host names that are accepted. None of them leads to another folder. */
    private static final Pattern HOST = Pattern.compile("[A-Za-z0-9][A-Za-z0-9._-]*");

    private final JobConf job;
    private final int reduce;
    private final List<String> patterns;
    /** The path from a local directory to the attempts' folders. */
    private final String below;
    /** The number of this process's user, which must own all files that are read. */
    private final Object user;
    private final long padding;

    /**
     * Reads the settings of a reduce task.
     *
     * @throws NotInPlaceException if a setting is missing or wrong, or this is not a task of YARN
     */
    Places(JobConf job, TaskID reduce) throws IOException {
        this(job, reduce, Files.getAttribute(Paths.get("/proc/self"), "unix:uid"));
    }

    Places(JobConf job, TaskID reduce, Object user) throws IOException {
        this.job = job;
        this.reduce = reduce.getId();
        this.patterns = patterns(job);
        this.below = below(job.getLocalDirs(), reduce.getJobID());
        this.user = user;
        this.padding = CryptoUtils.cryptoPadding(job);
    }

    private static List<String> patterns(JobConf job) throws NotInPlaceException {
        List<String> patterns = new ArrayList<>();
        for (String p : job.getTrimmedStrings(DIRS)) {
            if (!p.startsWith("/") || !p.contains("{host}") && !p.contains("{short}")) {
                throw new NotInPlaceException(DIRS + " has " + p + "; it must be an absolute path with {host} or {short}");
            }
            patterns.add(p);
        }
        if (patterns.isEmpty()) {
            throw new NotInPlaceException(DIRS + " is not set");
        }
        return patterns;
    }

    /** Returns usercache/USER/appcache/APPLICATION/output from the task's own local directories. */
    private static String below(String[] own, JobID job) throws NotInPlaceException {
        String application = "application" + job.toString().substring("job".length());
        for (String dir : own) {
            java.nio.file.Path p = Paths.get(dir);
            int n = p.getNameCount();
            if (n > 4 && p.getName(n - 4).toString().equals("usercache") && p.getName(n - 2).toString().equals("appcache")
                    && p.getName(n - 1).toString().equals(application)) {
                return p.subpath(n - 4, n) + "/output/";
            }
        }
        throw new NotInPlaceException("this task's local directories " + String.join(",", own)
            + " are not those of a NodeManager for " + application);
    }

    /**
     * Finds and checks the output of a map that has succeeded.
     *
     * @throws NotInPlaceException if the output cannot be found, now or later
     * @throws IOException if the output is missing now, cannot be read, or does not match its index
     */
    MapOutput find(TaskCompletionEvent event) throws IOException {
        TaskAttemptID attempt = event.getTaskAttemptId();
        List<String> folders = folders(event.getTaskTrackerHttp(), attempt);
        IndexRecord record = index(first(folders, "file.out.index")).getIndex(reduce);
        long raw = record.rawLength - padding;
        long stored = record.partLength - padding;
        if (record.startOffset < 0 || raw < EMPTY || stored < CHECKSUM) {
            throw new IOException("the index of " + attempt + " says " + record.partLength + " bytes at "
                + record.startOffset + ", uncompressed " + record.rawLength);
        }
        if (raw == EMPTY) {
            return new MapOutput(attempt, null, 0, 0, stored, raw);
        }
        java.nio.file.Path data = first(folders, "file.out");
        // The file system's client on the map's node may not have written all bytes yet.
        if (Files.size(data) - record.startOffset < record.partLength) {
            throw new EOFException(data + " is shorter than its index says");
        }
        return new MapOutput(attempt, new Path(data.toString()), record.startOffset, record.partLength, stored, raw);
    }

    /** Returns the folders in which the attempt's files can be. */
    private List<String> folders(String address, TaskAttemptID attempt) throws NotInPlaceException {
        String host;
        int port;
        try {
            URI uri = URI.create(address);
            host = uri.getHost();
            port = uri.getPort();
        } catch (IllegalArgumentException e) {
            throw new NotInPlaceException("the node of " + attempt + " has the address " + address, e);
        }
        if (host == null || !HOST.matcher(host).matches()) {
            throw new NotInPlaceException("the node of " + attempt + " has the address " + address
                + ", without a host name");
        }
        List<String> folders = new ArrayList<>();
        for (String pattern : patterns) {
            folders.add(pattern.replace("{host}", host).replace("{short}", host.split("\\.", 2)[0])
                .replace("{port}", Integer.toString(port)) + "/" + below + attempt + "/");
        }
        return folders;
    }

    /** Returns the first file of this name. The two files of an attempt may be in different local directories. */
    private java.nio.file.Path first(List<String> folders, String name) throws IOException {
        for (String folder : folders) {
            java.nio.file.Path file = Paths.get(folder, name);
            Map<String, Object> attributes;
            try {
                attributes = Files.readAttributes(file, "unix:isRegularFile,uid");
            } catch (NoSuchFileException e) {
                continue;
            }
            if (!(Boolean) attributes.get("isRegularFile") || !attributes.get("uid").equals(user)) {
                throw new IOException(file + " is not a file of user number " + user);
            }
            if (!Files.isReadable(file)) {
                throw new IOException(file + " is not readable");
            }
            return file;
        }
        throw new FileNotFoundException("no " + name + " in " + String.join(", ", folders));
    }

    /** Reads the index and verifies its checksum. Hadoop's class trusts the file's length, so index compares it first. */
    private SpillRecord index(java.nio.file.Path file) throws IOException {
        long expected = (long) job.getNumReduceTasks() * INDEX_RECORD + INDEX_CHECKSUM;
        long size = Files.size(file);
        if (size != expected) {
            throw new EOFException(file + " has " + size + " bytes instead of " + expected);
        }
        return new SpillRecord(new Path(file.toString()), job);
    }
}
