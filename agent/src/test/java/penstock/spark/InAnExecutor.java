package penstock.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.commons.io.FileUtils;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import penstock.core.TestDaemon;
import penstock.core.TestGates;

/**
 * Makes the test's process work for an application, like an executor, with a daemon for each test class. A process
 * cannot change its application and directories, so they are the same for all classes.
 */
abstract class InAnExecutor {
    static final String APPLICATION = "app-20261122123456-0007";
    static final Path DIRECTORY;
    /** The governed directory. */
    static final Path MANAGER;
    static TestDaemon daemon;

    static {
        System.setProperty("penstock.application", APPLICATION); // before the class that reads it
        try {
            DIRECTORY = Files.createTempDirectory("penstock").toRealPath();
            MANAGER = Files.createDirectories(DIRECTORY.resolve("local/blockmgr-1"));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> FileUtils.deleteQuietly(DIRECTORY.toFile())));
    }

    @BeforeAll
    static void start() throws Exception {
        daemon = new TestDaemon(DIRECTORY.resolve("s"), TestDaemon.ENFORCE);
        LocalFiles.connect(new File[] {MANAGER.toFile()}, daemon.socket.toString());
        assertEquals(APPLICATION, daemon.next(TestDaemon.HELLO).flow());
        while (!TestGates.isEnforcing()) {
            Thread.onSpinWait();
        }
    }

    @AfterAll
    static void stop() throws Exception {
        TestGates.reset();
        daemon.close();
    }
}
