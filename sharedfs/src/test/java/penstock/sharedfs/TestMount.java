package penstock.sharedfs;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import org.apache.hadoop.conf.Configuration;

/** Folders below the build's own, which stand for mounts. */
public final class TestMount {
    private TestMount() { }

    /** Returns a new, empty folder. */
    public static Path create() {
        try {
            Path work = Files.createDirectories(Paths.get(System.getProperty("penstock.sharedfs.work")));
            return Files.createTempDirectory(work, "mount");
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
