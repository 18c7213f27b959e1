package penstock.task;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
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
class TaskIT extends ContainerJvm {
    private static final int LINES = 60_000;

    @BeforeEach
    void begin() throws Exception {
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

    private void start(boolean inContainer) throws Exception {
        start(inContainer, SmallJob.class, directory.resolve("in").toString(), directory.resolve("out").toString(),
                local.toString(), daemon.socket.toString());
    }

    /** Returns the JVM's own thread dump. */
    private String threads() throws Exception {
        Process dump = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "jcmd").toString(),
                Long.toString(jvm.pid()), "Thread.print").redirectErrorStream(true).start();
        return new String(dump.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
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

    @Test
    void spillsAndMergesAreGoverned() throws Exception {
        daemon.generous = true;
        start(true);
        String log = ended();
        assertTrue(log.contains("file system penstock.task.GovernedLocalFileSystem penstock.task.GovernedRaw"), log);
        rightOutput();
        assertTrue(figure(log, "spilled") >= 3 * LINES, log); // each record is spilled by spill, merge and reduce

        Moved moved = moved();
        assertTrue(moved.written().contains("spill0.out") && moved.written().contains("file.out"), moved.toString());
        assertTrue(moved.read().contains("spill0.out") && moved.read().contains("file.out"), moved.toString());
        assertTrue(moved.written().stream().anyMatch(n -> n.startsWith("map_") && n.contains(".out")), moved.toString());
        // MapReduce also counts its input, output and staging files, which are local files here.
        long data = Files.size(directory.resolve("in/part0")) + Files.size(directory.resolve("in/part1"));
        assertTrue(moved.bytesWritten() > 3 * data && moved.bytesWritten() < figure(log, "written"), moved + " " + log);
        assertTrue(moved.bytesRead() > 3 * data, moved + " of " + data);
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
