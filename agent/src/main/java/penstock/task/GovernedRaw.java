package penstock.task;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.util.EnumSet;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BufferedFSInputStream;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathHandle;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;
import penstock.core.Stream;

/**
 * The raw local file system, with a gate below the buffers of the files that {@link Container} governs. Tasks read and
 * write a few bytes at a time; below the buffers, a gate is passed only once per buffer, and the daemon sees the same
 * reads and writes as the kernel.
 *
 * <p>In a container, buffers have at least {@link #BUFFER} bytes. Hadoop's default is 4 KiB ({@code
 * io.file.buffer.size}), which needs 260,000 system calls for a GB, each with a gate. The larger buffers save more CPU
 * time than gates and messages cost.
 */
final class GovernedRaw extends RawLocalFileSystem {
    /** The smallest buffer of a file, in bytes. */
    static final int BUFFER = 64 << 10;

    private final Map<String, String> environment;
    private final int leastBuffer;
    /** Null if nothing is governed. */
    private volatile Container container;

    GovernedRaw(Map<String, String> environment) {
        this(environment, BUFFER);
    }

    GovernedRaw(Map<String, String> environment, int leastBuffer) {
        this.environment = environment;
        this.leastBuffer = leastBuffer;
    }

    @Override
    public void initialize(URI uri, Configuration conf) throws IOException {
        super.initialize(uri, conf);
        container = Container.find(environment, conf);
    }

    @Override
    public FSDataInputStream open(Path f, int bufferSize) throws IOException {
        File file = governed(f);
        return file == null ? super.open(f, bufferSize) : gated(super.open(f, 1), file, buffer(bufferSize));
    }

    @Override
    public FSDataInputStream open(PathHandle handle, int bufferSize) throws IOException {
        // A handle has no path. Tasks do not use handles for local files.
        return super.open(handle, bufferSize);
    }

    /**
     * Wraps the stream in a gate. The stream's own buffer has one byte and passes everything on; the real buffer is
     * above the gate.
     */
    private FSDataInputStream gated(FSDataInputStream in, File file, int bufferSize) {
        return new FSDataInputStream(new BufferedFSInputStream(container.input(in, file), bufferSize));
    }

    private int buffer(int asked) {
        return container == null || asked <= 0 ? asked : Math.max(asked, leastBuffer);
    }

    @Override
    public FSDataOutputStream append(Path f, int bufferSize, Progressable progress) throws IOException {
        return super.append(f, buffer(bufferSize), progress);
    }

    @Override
    public FSDataOutputStream create(Path f, boolean overwrite, int bufferSize, short replication, long blockSize,
            Progressable progress) throws IOException {
        return super.create(f, overwrite, buffer(bufferSize), replication, blockSize, progress);
    }

    @Override
    public FSDataOutputStream create(Path f, FsPermission permission, boolean overwrite, int bufferSize,
            short replication, long blockSize, Progressable progress) throws IOException {
        return super.create(f, permission, overwrite, buffer(bufferSize), replication, blockSize, progress);
    }

    @Override
    public FSDataOutputStream createNonRecursive(Path f, FsPermission permission, boolean overwrite, int bufferSize,
            short replication, long blockSize, Progressable progress) throws IOException {
        return super.createNonRecursive(f, permission, overwrite, buffer(bufferSize), replication, blockSize, progress);
    }

    @Override
    public FSDataOutputStream createNonRecursive(Path f, FsPermission permission, EnumSet<CreateFlag> flags,
            int bufferSize, short replication, long blockSize, Progressable progress) throws IOException {
        return super.createNonRecursive(f, permission, flags, buffer(bufferSize), replication, blockSize, progress);
    }

    @Override
    protected OutputStream createOutputStreamWithMode(Path f, boolean append, FsPermission permission)
            throws IOException {
        OutputStream out = super.createOutputStreamWithMode(f, append, permission);
        File file = governed(f);
        if (file == null) {
            return out;
        }
        long from = append ? file.length() : 0;
        Stream stream = container.open(true, file, from, 0);
        return stream == null ? out : container.output(out, stream, from);
    }

    /**
     * Returns the file's canonical path if it is governed, else null. Never throws: Hadoop itself reports errors of f.
     */
    private File governed(Path f) {
        Container c = container;
        if (c == null) {
            return null;
        }
        try {
            return c.governs(pathToFile(f));
        } catch (Throwable t) {
            return null;
        }
    }
}
