package penstock.core;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class LocalDirectoriesTest {
    @TempDir
    Path folder;

    /** Spark's shuffle service opens files below the directory to which a link leads. */
    @Test
    void aLinkIsRegisteredWithItsDirectory() throws Exception {
        Path real = Files.createDirectory(folder.toRealPath().resolve("disk"));
        Path plain = Files.createDirectory(folder.toRealPath().resolve("plain"));
        Path link = Files.createSymbolicLink(folder.toRealPath().resolve("link"), real);
        Configuration configuration = new Configuration(false);
        configuration.set("yarn.nodemanager.local-dirs", link + ", file://" + plain + "," + plain);
        assertEquals(List.of(link.toString(), plain.toString(), plain.toString(), real.toString()),
                LocalDirectories.of(configuration));
    }
}
