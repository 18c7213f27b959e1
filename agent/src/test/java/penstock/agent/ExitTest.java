package penstock.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.commons.io.FileUtils;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import penstock.core.Gates;
import penstock.core.Role;
import penstock.core.TestDaemon;

/** Tests that the process of a plug-in exits as fast as without the plug-in. */
@Timeout(60)
class ExitTest {
    /**
     * A task that ends as soon as it is connected. Its last shutdown hook prints whether the agent's thread has ended.
     */
    public static final class Main {
        private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(20);

        private Main() { }

        public static void main(String[] args) {
            String reason = Gates.connect(args[0], Role.TASK, "application_1700000000000_0042", List.of("/d/"),
                    System.out::println);
            if (reason != null) {
                throw new IllegalStateException(reason);
            }
            while (!Gates.installed().isConnected()) {
                Thread.onSpinWait();
            }
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                long begun = System.nanoTime();
                while (lives() && System.nanoTime() - begun < PATIENCE_NANOS) {
                    Thread.onSpinWait();
                }
                System.out.println(lives() ? "its thread lives" : "its thread has ended");
            }));
        }

        private static boolean lives() {
            return Thread.getAllStackTraces().keySet().stream().anyMatch(t -> t.getName().equals("penstock-agent"));
        }
    }

    /** A thread in a system call, for example one that waits for a socket, delays the end of a JVM. */
    @Test
    void theConnectionEndsWhenTheExitBegins() throws Exception {
        Path directory = Files.createTempDirectory("penstock").toRealPath();
        try (TestDaemon daemon = new TestDaemon(directory.resolve("s"), TestDaemon.ENFORCE)) {
            Path log = directory.resolve("log");
            Process jvm = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin/java").toString(), "-cp",
                    built(Gates.class) + ":" + built(Main.class), Main.class.getName(), daemon.socket.toString())
                    .redirectErrorStream(true).redirectOutput(log.toFile()).start();
            try {
                assertTrue(jvm.waitFor(40, TimeUnit.SECONDS), () -> "no end");
            } finally {
                jvm.destroyForcibly().waitFor();
            }
            String said = Files.readString(log);
            assertEquals(0, jvm.exitValue(), said);
            assertTrue(said.contains("its thread has ended"), said);
        } finally {
            FileUtils.deleteDirectory(directory.toFile());
        }
    }

    private static String built(Class<?> of) throws Exception {
        return Path.of(of.getProtectionDomain().getCodeSource().getLocation().toURI()).toString();
    }
}
