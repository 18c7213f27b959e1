package penstock.sharedfs;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileUtil;

/** Folders below the build's own, which stand for mounts. They are deleted when the tests end. */
public final class TestMount {
    private static final Path WORK = Paths.get(System.getProperty("penstock.sharedfs.work"));

    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> FileUtil.fullyDelete(WORK.toFile())));
    }

    private TestMount() { }

    /** Returns a new, empty folder. */
    public static Path create() {
        try {
            return Files.createTempDirectory(Files.createDirectories(WORK), "mount");
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Returns a configuration in which shared: is the default file system, over a new folder. */
    public static Configuration configuration() {
        Configuration conf = new Configuration();
        configure(conf, create());
        conf.set("fs.AbstractFileSystem.shared.impl", SharedFs.class.getName());
        conf.set("fs.defaultFS", "shared:///");
        return conf;
    }

    /** Makes the folder the mount, although nothing is mounted there. */
    public static void configure(Configuration conf, Path mount) {
        conf.set(SharedFileSystem.MOUNT, mount.toString());
        conf.setBoolean(SharedFileSystem.MOUNT_REQUIRED, false);
    }
}
