package penstock.sharedfs;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import penstock.core.Gates;
import penstock.core.TestDaemon;

/** A daemon for turns, for this process, whose environment is that of a container. */
public final class TurnsDaemon implements AutoCloseable {
    public final TestDaemon daemon;
    private final Path folder = Files.createTempDirectory("turns"); // the path of a socket must be short

    /** Starts a daemon that enforces, and configures clients to take turns. */
    public TurnsDaemon(Configuration conf) throws Exception {
        Gates.install(null); // the connection of another test
        daemon = new TestDaemon(folder.resolve("s"), TestDaemon.ENFORCE);
        conf.set("penstock.socket", daemon.socket.toString());
        conf.setBoolean("penstock.sharedfs.turns", true);
    }

    /** Waits until this process is connected. */
    public void awaitEnforcing() throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
        while (Gates.installed() == null || !Gates.installed().enforcing(System.nanoTime())) {
            assertTrue(System.nanoTime() < end, "not connected");
            Thread.sleep(1);
        }
    }

    @Override
    public void close() throws Exception {
        if (Gates.installed() != null) {
            Gates.installed().stop();
            Gates.install(null);
        }
        daemon.close();
        Files.delete(folder);
    }
}
