package penstock.sharedfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.URI;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import penstock.core.TestDaemon;
import penstock.core.TestDaemon.Heard;
import penstock.sharedfs.layout.Counts;
import penstock.sharedfs.layout.Locator;
import penstock.sharedfs.layout.Setup;
import penstock.sharedfs.turns.FileTurns;
import penstock.sharedfs.turns.Turns;

/** Reads and writes of shared: take turns of a daemon on a real socket. The environment is that of a container. */
class TurnsTest {
    private static final int MIB = 1 << 20;
    private static final String APPLICATION = "application_1700000000000_0001";
    /** One chunk, on two servers. */
    private static final String MOOSE = """
        for file; do
          printf '%s:\\n\\tchunk 0: 02_01 / (id:2 ver:1)\\n' "$file"
          printf '\\t\\tcopy 1: 10.0.0.1:9422 (status:VALID)\\n\\t\\tcopy 2: 10.0.0.2:9422 (status:VALID)\\n'
        done
        """;

    private final java.nio.file.Path mount = TestMount.create();
    private final FakeTools tools = new FakeTools().tool("mfsfileinfo", MOOSE);
    private final Configuration conf = new Configuration();
    private final byte[] bytes = new byte[5 * MIB];
    private TurnsDaemon turns;
    private TestDaemon daemon;
    private FileSystem fs;

    @BeforeEach
    void start() throws Exception {
        new Random(1).nextBytes(bytes);
        turns = new TurnsDaemon(conf);
        daemon = turns.daemon;
        TestMount.configure(conf, mount);
        tools.configure(conf, "moosefs");
        fs = FileSystem.newInstance(URI.create("shared:///"), conf);
        Heard hello = daemon.next(TestDaemon.HELLO);
        assertEquals(APPLICATION, hello.flow());
        assertEquals(List.of(), hello.directories());
        turns.awaitEnforcing();
    }

    @AfterEach
    void stop() throws Exception {
        fs.close();
        turns.close();
    }

    private byte[] read(int length) throws IOException {
        byte[] read = new byte[length];
        try (FSDataInputStream in = fs.open(new Path("/f"))) {
            in.readFully(0, read, 0, 1); // a small read asks nobody
            in.readFully(read);
        }
        return read;
    }

    @Test
    void readsTakeTurns() throws Exception {
        Files.write(mount.resolve("f"), bytes);
        long before = Counts.THIS_JVM.getTurns();
        CompletableFuture<byte[]> read = CompletableFuture.supplyAsync(() -> {
            try {
                return read(bytes.length);
            } catch (IOException e) {
                throw new java.io.UncheckedIOException(e);
            }
        });
        long sum = 0;
        for (int turns = 0; sum < bytes.length; turns++) {
            Heard open = daemon.next(TestDaemon.OPEN);
            assertFalse(open.write());
            assertFalse(open.passing());
            assertEquals("10.0.0.1", open.peer().server);
            assertEquals(APPLICATION, open.flow());
            assertEquals(mount.toString(), open.block());
            assertEquals(0, open.from());
            if (turns == 0) {
                assertEquals(128 << 10, open.to());
                Thread.sleep(100);
                assertEquals(List.of(), daemon.heard(), "the read did not wait");
            }
            assertTrue(open.to() <= MIB, open.toString());
            sum += open.to();
            daemon.mark(open.stream(), Long.MAX_VALUE);
            Heard close = daemon.next(TestDaemon.CLOSE);
            assertEquals(open.stream(), close.stream());
            assertEquals(open.to(), close.position());
        }
        assertEquals(bytes.length, sum);
        assertArrayEquals(bytes, read.get(1, TimeUnit.MINUTES));
        assertTrue(Counts.THIS_JVM.getTurns() > before);
    }

    @Test
    void writesTakeTurns() throws Exception {
        daemon.generous = true;
        try (FSDataOutputStream out = fs.create(new Path("/f"))) {
            out.write(1);
            out.write(bytes);
        }
        byte[] written = Files.readAllBytes(mount.resolve("f"));
        assertEquals(bytes.length + 1, written.length);
        long sum = 0;
        while (sum < bytes.length) {
            Heard open = daemon.next(TestDaemon.OPEN);
            assertTrue(open.write());
            assertEquals("10.0.0.1", open.peer().server);
            sum += open.to();
        }
        assertEquals(bytes.length, sum);
        assertEquals(1, tools.called().size(), "the layout of a file within a chunk is asked for once");
    }

    @Test
    void turnsAreNoLargerThanConfigured() throws Exception {
        daemon.generous = true;
        conf.set("penstock.sharedfs.turn.bytes", "256k");
        try (FileSystem small = FileSystem.newInstance(URI.create("shared:///"), conf)) {
            try (FSDataOutputStream out = small.create(new Path("/f"))) {
                out.write(bytes);
            }
            assertEquals(List.of(256 << 10), turnsOf(true).stream().distinct().toList());
            byte[] read = new byte[bytes.length];
            try (FSDataInputStream in = small.open(new Path("/f"))) {
                in.readFully(read);
                assertArrayEquals(bytes, read);
                assertEquals(List.of(128 << 10, 256 << 10), turnsOf(false).stream().distinct().sorted().toList());
                in.readFully(0, read); // not sequential
                assertArrayEquals(bytes, read);
                assertEquals(List.of(256 << 10), turnsOf(false).stream().distinct().toList());
            }
        }
    }

    /** A pipe accepts bytes, but cannot be synced. The bytes may be lost, so the file is never taken for complete. */
    @Test
    void bytesThatDoNotReachTheDiskAreReportedUntilTheEnd() throws Exception {
        daemon.generous = true;
        try (FileChannel pipe = pipe()) {
            SharedOutput out = output(pipe, true);
            byte[] turn = new byte[Turns.LEAST];
            assertThrows(IOException.class, () -> out.write(turn));
            assertThrows(IOException.class, () -> out.write(turn));
            assertThrows(IOException.class, out::hsync);
            assertThrows(IOException.class, out::close);
        }
        try (FileChannel pipe = pipe()) {
            SharedOutput out = output(pipe, false);
            out.write(new byte[Turns.LEAST]);
            assertTrue(daemon.next(TestDaemon.OPEN).write());
        }
    }

    private FileChannel pipe() throws Exception {
        java.nio.file.Path pipe = mount.resolve("pipe");
        Files.deleteIfExists(pipe);
        assertEquals(0, new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor());
        return FileChannel.open(pipe, StandardOpenOption.READ, StandardOpenOption.WRITE);
    }

    private SharedOutput output(FileChannel file, boolean sync) throws IOException {
        conf.setBoolean("penstock.sharedfs.turn.sync", sync);
        Locator locator = Setup.locator(conf, mount.toString());
        FileTurns ofFile = new FileTurns(Turns.find(conf, System.getenv(), locator, mount),
            new Locator.File(mount.resolve("pipe").toString(), 0, 0), true);
        return new SharedOutput(file, mount.resolve("pipe"), Turns.LEAST, 0, ofFile);
    }

    @Test
    void aSizeThatCannotBeReadLeavesTheUsualOne() throws Exception {
        daemon.generous = true;
        conf.set("penstock.sharedfs.turn.bytes", "256KiB");
        try (FileSystem usual = FileSystem.newInstance(URI.create("shared:///"), conf);
                FSDataOutputStream out = usual.create(new Path("/f"))) {
            out.write(bytes);
            assertEquals(List.of(MIB), turnsOf(true).stream().distinct().toList());
        }
    }

    /** Returns the sizes of the turns that transferred all of the test's bytes. */
    private List<Integer> turnsOf(boolean write) throws Exception {
        List<Integer> sizes = new ArrayList<>();
        for (int sum = 0; sum < bytes.length; sum += sizes.get(sizes.size() - 1)) {
            Heard open = daemon.next(TestDaemon.OPEN);
            assertEquals(write, open.write());
            sizes.add((int) open.to());
        }
        return sizes;
    }

    @Test
    void aDaemonThatIsSilentHoldsNothing() throws Exception {
        Files.write(mount.resolve("f"), bytes);
        daemon.generous = false;
        daemon.beating = false;
        long before = Counts.THIS_JVM.getTurnsPassed();
        long start = System.nanoTime();
        assertArrayEquals(bytes, read(bytes.length));
        assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(30));
        assertTrue(Counts.THIS_JVM.getTurnsPassed() > before);
    }

    @Test
    void aRangeOfNoKnownServerAsksNobody() throws Exception {
        Files.write(mount.resolve("f"), bytes);
        tools.tool("mfsfileinfo", "exit 1");
        long before = Counts.THIS_JVM.getTurnsNotAsked();
        assertArrayEquals(bytes, read(bytes.length));
        assertTrue(Counts.THIS_JVM.getTurnsNotAsked() > before);
        assertEquals(List.of(), daemon.heard());
    }

    @Test
    void withoutTheSettingNobodyIsAsked() throws Exception {
        Files.write(mount.resolve("f"), bytes);
        conf.setBoolean("penstock.sharedfs.turns", false);
        try (FileSystem plain = FileSystem.newInstance(URI.create("shared:///"), conf);
                FSDataInputStream in = plain.open(new Path("/f"))) {
            in.readFully(new byte[bytes.length]);
        }
        assertEquals(List.of(), tools.called());
        assertEquals(List.of(), daemon.heard());
    }
}
