package penstock.task;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedWriter;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.commons.io.FileUtils;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import penstock.core.TestDaemon.Heard;
import penstock.core.TestDaemon;

/**
 * Tests MapReduce's own spills, merges and fetches in a JVM with a container's environment, and the packed jar on its
 * class path. Maven runs this once for each version of Hadoop.
 */
@Timeout(180)
class TaskIT {
    private static final String JAR = System.getProperty("penstock.agent.jar");
    private static final String APPLICATION = "application_1700000000000_0042";
    private static final int LINES = 60_000;

    private Path directory;
    private Path local;
    private TestDaemon daemon;
    private Process jvm;

    @BeforeEach
    void begin() throws Exception {
        directory = Files.createTempDirectory("penstock").toRealPath();
        local = Files.createDirectories(directory.resolve("local/usercache/u/appcache/" + APPLICATION));
        daemon = new TestDaemon(directory.resolve("s"), TestDaemon.ENFORCE);
        Random random = new Random(7);
        for (int f = 0; f < 2; f++) {
            Files.createDirectories(directory.resolve("in"));
            try (BufferedWriter out = Files.newBufferedWriter(directory.resolve("in/part" + f))) {
                for (int i = 0; i < LINES / 2; i++) {
                    out.write(Long.toHexString(random.nextLong()) + " " + Long.toHexString(random.nextLong()) + "\n");
                }
            }
        }
    }

    @AfterEach
    void end() throws Exception {
        if (jvm != null) {
            jvm.destroyForcibly().waitFor();
        }
        daemon.close();
        FileUtils.deleteDirectory(directory.toFile());
    }

    private void start(boolean inContainer) throws Exception {
        start(inContainer, SmallJob.class, directory.resolve("in").toString(), directory.resolve("out").toString(),
                local.toString(), daemon.socket.toString());
    }

    private void start(boolean inContainer, Class<?> main, String... arguments) throws Exception {
        List<String> classPath = new ArrayList<>(List.of(JAR));
        for (String entry : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (entry.endsWith(".jar") && !entry.contains("junit") && !entry.contains("byte-buddy")) {
                classPath.add(entry);
            }
        }
        Path own = Path.of(main.getProtectionDomain().getCodeSource().getLocation().toURI());
        assertFalse(Files.exists(own.resolve("penstock/task/GovernedLocalFileSystem.class")), own.toString());
        classPath.add(own.toString());
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                "--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED",
                "-cp", String.join(File.pathSeparator, classPath), main.getName()));
        command.addAll(List.of(arguments));
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.environment().keySet().removeIf(k -> k.equals("CONTAINER_ID") || k.equals("LOCAL_DIRS"));
        if (inContainer) {
            builder.environment().put("CONTAINER_ID", "container_1700000000000_0042_01_000002");
            builder.environment().put("LOCAL_DIRS", local.toString());
        }
        jvm = builder.redirectErrorStream(true).redirectOutput(directory.resolve("log").toFile()).start();
    }

    /** Returns the JVM's own thread dump. */
    private String threads() throws Exception {
        Process dump = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "jcmd").toString(),
                Long.toString(jvm.pid()), "Thread.print").redirectErrorStream(true).start();
        return new String(dump.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    }

    private String log() throws Exception {
        return Files.readString(directory.resolve("log"), StandardCharsets.UTF_8);
    }

    private String ended() throws Exception {
        assertTrue(jvm.waitFor(120, TimeUnit.SECONDS), "no end");
        assertEquals(0, jvm.exitValue(), log());
        assertFalse(log().contains("suppressed"), log());
        return log();
    }

    private static long figure(String log, String name) {
        return log.lines().filter(l -> l.startsWith(name + " ")).mapToLong(l -> Long.parseLong(l.split(" ")[1])).sum();
    }

    /** The job's output is its input in another order. */
    private void rightOutput() throws Exception {
        List<String> in = new ArrayList<>();
        in.addAll(Files.readAllLines(directory.resolve("in/part0")));
        in.addAll(Files.readAllLines(directory.resolve("in/part1")));
        List<String> out = Files.readAllLines(directory.resolve("out/part-00000"));
        assertEquals(LINES, out.size());
        in.sort(null);
        out.sort(null);
        assertEquals(in, out);
    }

    /** The files that the daemon has heard of, by name, and the bytes of their streams. */
    private record Moved(Set<String> written, Set<String> read, long bytesWritten, long bytesRead) { }

    private Moved moved() throws Exception {
        Heard hello = daemon.next(TestDaemon.HELLO);
        assertEquals(APPLICATION, hello.flow());
        Map<Integer, Heard> open = new HashMap<>();
        Set<String> written = new HashSet<>();
        Set<String> read = new HashSet<>();
        long bytesWritten = 0;
        long bytesRead = 0;
        for (Heard h : daemon.heard()) {
            if (h.type() == TestDaemon.OPEN) {
                assertEquals(APPLICATION, h.flow());
                assertTrue(h.block().startsWith(local + "/"), h.block());
                (h.write() ? written : read).add(new File(h.block()).getName());
                open.put(h.stream(), h);
            } else if (h.type() == TestDaemon.CLOSE) {
                Heard began = open.remove(h.stream());
                assertFalse(h.failed(), () -> "failed: " + began);
                if (began.write()) {
                    bytesWritten += h.position() - began.from();
                } else {
                    bytesRead += h.position() - began.from();
                }
            }
        }
        return new Moved(written, read, bytesWritten, bytesRead);
    }

    @Test
    void spillsAndMergesAreGoverned() throws Exception {
        daemon.generous = true;
        start(true);
        String log = ended();
        assertTrue(log.contains("file system penstock.task.GovernedLocalFileSystem penstock.task.GovernedRaw"), log);
        rightOutput();
        assertTrue(figure(log, "spilled") >= 3 * LINES, log); // each record is spilled by spill, merge and reduce

        Moved moved = moved();
        assertTrue(moved.written.contains("spill0.out") && moved.written.contains("file.out"), moved.toString());
        assertTrue(moved.read.contains("spill0.out") && moved.read.contains("file.out"), moved.toString());
        assertTrue(moved.written.stream().anyMatch(n -> n.startsWith("map_") && n.contains(".out")), moved.toString());
        // MapReduce also counts its input, output and staging files, which are local files here.
        long data = Files.size(directory.resolve("in/part0")) + Files.size(directory.resolve("in/part1"));
        assertTrue(moved.bytesWritten > 3 * data && moved.bytesWritten < figure(log, "written"), moved + " " + log);
        assertTrue(moved.bytesRead > 3 * data, moved + " of " + data);
    }

    /**
     * Tasks of Tez use the same file system. A task that reads what another task has written on this node opens the
     * other task's file.
     */
    @Test
    void tasksOfTezAreGoverned() throws Exception {
        daemon.generous = true;
        start(true, SmallTez.class, local.toString(), daemon.socket.toString());
        String log = ended();
        Moved moved = moved();
        assertTrue(moved.written.containsAll(Set.of("file.out", "file.out.index")), moved.toString());
        assertTrue(moved.read.containsAll(Set.of("file.out", "file.out.index")), moved.toString());
        long direct = figure(log, "direct");
        long spilled = figure(log, "spilled");
        assertTrue(direct > SmallTez.BYTES && spilled > SmallTez.BYTES, log);
        assertTrue(moved.bytesWritten >= direct + spilled, moved + " " + log);
        assertTrue(moved.bytesRead >= direct + spilled, moved + " " + log);
    }

    @Test
    void aDaemonThatDiesHoldsNoTaskUp() throws Exception {
        start(true);
        Heard open = daemon.next(TestDaemon.OPEN);
        while (!open.block().endsWith("/spill0.out")) {
            daemon.mark(open.stream(), Long.MAX_VALUE);
            open = daemon.next(TestDaemon.OPEN);
        }
        while (!threads().contains("penstock.core.Gates.await")) {
            assertTrue(jvm.isAlive(), log());
        }
        daemon.close();
        ended();
        rightOutput();
    }

    @Test
    void outsideAContainerNothingIsGoverned() throws Exception {
        start(false);
        String log = ended();
        assertTrue(log.contains("file system penstock.task.GovernedLocalFileSystem"), log);
        rightOutput();
        assertTrue(daemon.heard().isEmpty());
    }
}
