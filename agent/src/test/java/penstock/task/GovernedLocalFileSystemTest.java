package penstock.task;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.apache.commons.io.FileUtils;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import penstock.core.Stream;
import penstock.core.TestDaemon.Heard;
import penstock.core.TestDaemon;
import penstock.core.TestGates;
import penstock.core.Window;

/** Tests the file system as a task uses it, with a real socket and a scripted daemon. */
@Timeout(60)
class GovernedLocalFileSystemTest {
    private static final String APPLICATION = "application_1700000000000_0042";
    private static final String CONTAINER = "container_e01_1700000000000_0042_01_000002";
    private static final byte[] DATA = new byte[3 << 20];
    private static final int INTERMEDIATE = 1;
    private static final int TASK = 2;

    static {
        new Random(1).nextBytes(DATA);
    }

    /** Hadoop's own buffer size, so that a test can distinguish bytes in the file from bytes in the buffer. */
    private static final int LEAST_BUFFER = 4096;

    private java.nio.file.Path directory;
    private File local;
    private TestDaemon daemon;
    private final Configuration conf = new Configuration(false);
    private LocalFileSystem fs;
    private long failures;

    @BeforeEach
    void begin() throws Exception {
        directory = Files.createTempDirectory("penstock").toRealPath();
        local = directory.resolve("local").toFile();
        assertTrue(local.mkdir());
        daemon = new TestDaemon(directory.resolve("s"), TestDaemon.ENFORCE);
        conf.set("penstock.socket", daemon.socket.toString());
        failures = TestGates.failures();
    }

    @AfterEach
    void end() throws Exception {
        TestGates.reset();
        daemon.close();
        FileUtils.deleteDirectory(directory.toFile());
        assertEquals(failures, TestGates.failures());
    }

    private LocalFileSystem fileSystem(String container, String localDirs) throws Exception {
        Map<String, String> environment = new HashMap<>();
        if (container != null) {
            environment.put("CONTAINER_ID", container);
        }
        if (localDirs != null) {
            environment.put("LOCAL_DIRS", localDirs);
        }
        LocalFileSystem made = new GovernedLocalFileSystem(new GovernedRaw(environment, LEAST_BUFFER));
        made.initialize(FileSystem.getDefaultUri(conf), conf);
        return made;
    }

    private Path path(String name) {
        return new Path(local.getPath(), name);
    }

    private static void await(BooleanSupplier condition) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, "it did not happen within 20 s");
            Thread.onSpinWait();
        }
    }

    /** A thread of the task's. */
    private static final class Worker<T> {
        final FutureTask<T> task;
        final Thread thread;

        Worker(Callable<T> body) {
            task = new FutureTask<>(body);
            thread = new Thread(task);
            thread.setDaemon(true);
            thread.start();
        }

        Worker<T> held() {
            await(() -> LockSupport.getBlocker(thread) instanceof Stream || task.isDone());
            assertFalse(task.isDone());
            return this;
        }

        T result() throws Exception {
            return task.get(20, TimeUnit.SECONDS);
        }
    }

    /** Starts a thread of the task's and returns when it waits at a gate. */
    private static <T> Worker<T> hold(Callable<T> body) {
        return new Worker<>(body).held();
    }

    /** Makes the task's file system, which connects. Gates hold, and no file has been announced yet. */
    private void connect() throws Exception {
        fs = fileSystem(CONTAINER, local.getPath());
        Heard hello = daemon.next(TestDaemon.HELLO);
        assertEquals(TASK, hello.role());
        assertEquals(APPLICATION, hello.flow());
        assertEquals(List.of(local + "/"), hello.directories());
        await(TestGates::isEnforcing);
    }

    private File file(String name, byte[] data) throws Exception {
        File file = new File(local, name);
        Files.write(file.toPath(), data);
        return file;
    }

    @Test
    void mapReduceFindsItAndItsRawSide() throws Exception {
        conf.setClass("fs.file.impl", GovernedLocalFileSystem.class, FileSystem.class);
        LocalFileSystem found = (LocalFileSystem) FileSystem.newInstance(FileSystem.getDefaultUri(conf), conf);
        assertInstanceOf(GovernedLocalFileSystem.class, found);
        assertInstanceOf(RawLocalFileSystem.class, found.getRaw());
        assertInstanceOf(GovernedRaw.class, found.getRaw());
        found.close();
    }

    /** A file that is written before the daemon has answered is reported from its beginning, and then held. */
    @Test
    void aTasksFirstFileIsGoverned() throws Exception {
        daemon.close();
        fs = fileSystem(CONTAINER, local.getPath());
        FSDataOutputStream out = fs.getRaw().create(path("first"), true, 4096);
        out.write(DATA, 0, 10_000);
        daemon = new TestDaemon(directory.resolve("s"), TestDaemon.ENFORCE);
        Heard open = daemon.next(TestDaemon.OPEN);
        assertEquals(local + "/first", open.block());
        assertEquals(0, open.from());
        await(TestGates::isEnforcing);
        Worker<Void> rest = hold(() -> {
            out.write(DATA, 10_000, 10_000);
            out.close();
            return null;
        });
        assertEquals(10_000, daemon.next(TestDaemon.PROGRESS).position());
        daemon.mark(open.stream(), 1 << 20);
        rest.result();
        assertEquals(20_000, daemon.next(TestDaemon.CLOSE).position());
    }

    @Test
    void aWriteWaitsAtItsMark() throws Exception {
        connect();
        FSDataOutputStream out = fs.getRaw().create(path("spill0.out"), true, 4096);
        Heard open = daemon.next(TestDaemon.OPEN);
        assertTrue(open.write());
        assertEquals(INTERMEDIATE, open.kind());
        assertEquals(APPLICATION, open.flow());
        assertEquals(local + "/spill0.out", open.block());
        assertEquals(0, open.from());
        assertEquals(0, open.to());

        out.write(DATA, 0, 4000); // fits in the buffer, so it passes no gate
        Worker<Void> first = hold(() -> {
            out.write(DATA, 4000, 97);
            return null;
        });
        assertEquals(0, new File(local, "spill0.out").length());
        daemon.mark(open.stream(), 1);
        first.result();
        Worker<Void> second = hold(() -> {
            out.write(DATA, 4097, 8192);
            out.hflush();
            return null;
        });
        assertEquals(4000, new File(local, "spill0.out").length());
        assertEquals(4000, daemon.next(TestDaemon.PROGRESS).position());
        daemon.mark(open.stream(), 10_000_000);
        second.result();
        out.close();
        Heard close = daemon.next(TestDaemon.CLOSE);
        assertEquals(12_289, close.position());
        assertFalse(close.failed());
        assertArrayEquals(Arrays.copyOf(DATA, 12_289), Files.readAllBytes(new File(local, "spill0.out").toPath()));
    }

    @Test
    void aWriteOfAnyLengthIsHeldPieceByPiece() throws Exception {
        connect();
        FSDataOutputStream out = fs.getRaw().create(path("big"), true, 4096);
        int stream = daemon.next(TestDaemon.OPEN).stream();
        daemon.mark(stream, 1 << 20);
        Worker<Void> write = hold(() -> {
            out.write(DATA);
            out.close();
            return null;
        });
        await(() -> new File(local, "big").length() >= 1 << 20); // the writer may already wait when the mark comes
        write.held();
        assertEquals(1 << 20, new File(local, "big").length());
        daemon.mark(stream, Long.MAX_VALUE);
        write.result();
        assertEquals(DATA.length, daemon.next(TestDaemon.CLOSE).position());
    }

    @Test
    void anAppendBeginsWhereTheFileEnds() throws Exception {
        connect();
        file("a", Arrays.copyOf(DATA, 777));
        daemon.generous = true;
        try (FSDataOutputStream out = fs.getRaw().append(path("a"))) {
            out.write(DATA, 777, 1000);
        }
        assertEquals(777, daemon.next(TestDaemon.OPEN).from());
        assertEquals(1777, daemon.next(TestDaemon.CLOSE).position());
        assertArrayEquals(Arrays.copyOf(DATA, 1777), Files.readAllBytes(new File(local, "a").toPath()));
    }

    @Test
    void smallWritesAreBatched() throws Exception {
        connect();
        daemon.generous = true;
        try (FSDataOutputStream out = fs.getRaw().create(path("small"), true, 4096)) {
            daemon.next(TestDaemon.OPEN);
            for (int i = 0; i < 1 << 20; i++) {
                out.write(i);
            }
        }
        List<Heard> frames = daemon.until(TestDaemon.CLOSE);
        // Its mark is open: once in four strides.
        assertTrue(frames.size() <= 2 + (1 << 20) / 4 / TestDaemon.STRIDE, frames.size() + " frames");
    }

    @Test
    void aReadWaitsAtItsMark() throws Exception {
        file("in", DATA);
        connect();
        FSDataInputStream in = fs.getRaw().open(path("in"), 4096);
        byte[] all = new byte[DATA.length];
        Worker<Void> read = hold(() -> {
            in.readFully(all, 0, 5000);
            return null;
        });
        Heard open = daemon.next(TestDaemon.OPEN);
        assertFalse(open.write());
        assertEquals(INTERMEDIATE, open.kind());
        assertEquals(local + "/in", open.block());
        assertEquals("", open.meta());
        assertEquals(0, open.from());
        assertEquals(Window.MIN, open.to());
        daemon.mark(open.stream(), 4095);
        read.held();
        daemon.mark(open.stream(), 8192);
        read.result();
        read = hold(() -> {
            in.readFully(all, 5000, all.length - 5000);
            return null;
        });
        daemon.mark(open.stream(), Window.MIN);
        // Half of the window is read, so the next window is announced. The reader is held at the end of the present
        // one.
        Heard next = daemon.next(TestDaemon.OPEN);
        assertEquals(Window.MIN, next.from());
        assertEquals(3 * Window.MIN, next.to());
        read.held();
        daemon.generous = true;
        daemon.mark(next.stream(), next.to());
        read.result();
        in.close();
        assertArrayEquals(DATA, all);
        await(() -> TestGates.streamsOpen() == 0);
    }

    @Test
    void theRestOfTheFileIsNotAnnounced() throws Exception {
        file("segments", DATA);
        connect();
        daemon.generous = true;
        byte[] some = new byte[100_000];
        try (FSDataInputStream in = fs.getRaw().open(path("segments"), 4096)) {
            in.seek(1_000_000);
            in.readFully(some);
        }
        Heard open = daemon.next(TestDaemon.OPEN);
        assertEquals(1_000_000, open.from());
        assertEquals(1_000_000 + Window.MIN, open.to());
        List<Heard> rest = daemon.until(TestDaemon.CLOSE);
        assertTrue(rest.stream().noneMatch(h -> h.type() == TestDaemon.OPEN), rest.toString());
        assertTrue(rest.get(rest.size() - 1).position() >= 1_100_000);
        await(() -> TestGates.streamsOpen() == 0);
        daemon.forget();

        // A sequential reader's windows grow, meet, and end with the file.
        try (FSDataInputStream in = fs.getRaw().open(path("segments"), 4096)) {
            in.readFully(new byte[DATA.length]);
            assertEquals(-1, in.read());
        }
        await(() -> TestGates.streamsOpen() == 0);
        daemon.raw(); // nothing, but after all that was sent before
        List<Heard> windows = new ArrayList<>();
        long end = 0;
        while (end < DATA.length) {
            Heard h = daemon.next(TestDaemon.OPEN);
            assertEquals(end, h.from());
            end = h.to();
            windows.add(h);
        }
        assertEquals(DATA.length, end);
        assertEquals(4, windows.size(), windows.toString()); // 256 KiB, 512, 1024, and the rest
    }

    @Test
    void aSeekBeginsAnew() throws Exception {
        file("in", DATA);
        connect();
        daemon.generous = true;
        try (FSDataInputStream in = fs.getRaw().open(path("in"), 4096)) {
            in.readFully(new byte[10_000]);
            assertEquals(0, daemon.next(TestDaemon.OPEN).from());
            in.seek(2_000_000);
            assertEquals(DATA[2_000_000], (byte) in.read());
            Heard open = daemon.next(TestDaemon.OPEN);
            assertEquals(2_000_000, open.from());
            in.seek(100_000);
            assertEquals(DATA[100_000], (byte) in.read());
            open = daemon.next(TestDaemon.OPEN);
            assertEquals(100_000, open.from());
            in.seek(150_000); // within the present window
            assertEquals(DATA[150_000], (byte) in.read());
        }
        assertTrue(daemon.until(TestDaemon.CLOSE).stream().noneMatch(h -> h.type() == TestDaemon.OPEN));
    }

    @Test
    void aPositionedReadWaitsForItsRange() throws Exception {
        file("in", DATA);
        connect();
        FSDataInputStream in = fs.getRaw().open(path("in"), 4096);
        byte[] some = new byte[200_000];
        Worker<Void> read = hold(() -> {
            in.readFully(500_000, some);
            return null;
        });
        Heard open = daemon.next(TestDaemon.OPEN);
        assertEquals(500_000, open.from());
        assertEquals(700_000, open.to());
        // The reader follows a daemon that is never far ahead of it.
        for (long mark = open.from() + 70_000; !read.task.isDone(); mark += 70_000) {
            daemon.mark(open.stream(), mark);
            if (mark < open.to()) {
                daemon.next(TestDaemon.PROGRESS);
            }
            if (mark >= open.to()) {
                read.result();
            }
        }
        assertArrayEquals(Arrays.copyOfRange(DATA, 500_000, 700_000), some);
        assertEquals(0, in.getPos());
        assertEquals(700_000, daemon.next(TestDaemon.CLOSE).position());
        in.close();
    }

    @Test
    void aVectoredReadAnnouncesItsRangesTogether() throws Exception {
        file("in", DATA);
        connect();
        FSDataInputStream in = fs.getRaw().open(path("in"), 4096);
        List<FileRange> ranges = List.of(FileRange.createFileRange(1_000_000, 5000),
                FileRange.createFileRange(0, 1000), FileRange.createFileRange(2000, 3000));
        Worker<Void> read = new Worker<>(() -> {
            in.readVectored(ranges, ByteBuffer::allocate);
            return null;
        });
        Heard first = daemon.next(TestDaemon.OPEN);
        assertEquals(0, first.from());
        assertEquals(5000, first.to());
        Heard second = daemon.next(TestDaemon.OPEN);
        assertEquals(1_000_000, second.from());
        assertEquals(1_005_000, second.to());
        read.held();
        daemon.mark(second.stream(), second.to());
        read.held();
        daemon.mark(first.stream(), first.to());
        read.result();
        for (FileRange r : ranges) {
            ByteBuffer data = r.getData().get(20, TimeUnit.SECONDS);
            byte[] bytes = new byte[data.remaining()];
            data.get(bytes);
            int at = (int) r.getOffset();
            assertArrayEquals(Arrays.copyOfRange(DATA, at, at + r.getLength()), bytes);
        }
        in.close();
        await(() -> TestGates.streamsOpen() == 0);
    }

    @Test
    void closeRangesAreOne() {
        List<FileRange> asked = new ArrayList<>();
        asked.add(FileRange.createFileRange(900, 200));
        asked.add(FileRange.createFileRange(100, 50));
        asked.add(FileRange.createFileRange(120, 10));
        asked.add(null);
        asked.add(FileRange.createFileRange(200_000, 1 << 20));
        asked.add(FileRange.createFileRange(5_000_000, 1));
        List<long[]> whole = GovernedInput.coalesce(asked, 300_000);
        assertEquals(2, whole.size());
        assertArrayEquals(new long[] {100, 1100}, whole.get(0));
        assertArrayEquals(new long[] {200_000, 300_000}, whole.get(1));
        assertTrue(GovernedInput.coalesce(null, 1).isEmpty());
    }

    /** A vectored read with more ranges than it may announce at once. */
    @Test
    void aVectoredReadHasFewStreamsAtATime() throws Exception {
        byte[] large = new byte[12 << 20];
        new Random(2).nextBytes(large);
        file("in", large);
        connect();
        List<FileRange> ranges = new ArrayList<>();
        for (int i = 0; i < 2 * GovernedInput.BATCH; i++) {
            ranges.add(FileRange.createFileRange(i * 150_000L, 100));
        }
        FSDataInputStream in = fs.getRaw().open(path("in"), 4096);
        Worker<Void> read = hold(() -> {
            in.readVectored(ranges, ByteBuffer::allocate);
            return null;
        });
        assertEquals(GovernedInput.BATCH, TestGates.streamsOpen());
        daemon.generous = true;
        for (int i = 0; i < GovernedInput.BATCH; i++) {
            daemon.mark(daemon.next(TestDaemon.OPEN).stream(), Long.MAX_VALUE);
        }
        read.result();
        for (FileRange r : ranges) {
            assertEquals(large[(int) r.getOffset()], r.getData().get(20, TimeUnit.SECONDS).get(0));
        }
        in.close();
    }

    @Test
    void theDaemonsDeathReleasesEverybodyWithinASecond() throws Exception {
        file("in", DATA);
        connect();
        FSDataOutputStream out = fs.getRaw().create(path("out"), true, 4096);
        FSDataInputStream in = fs.getRaw().open(path("in"), 4096);
        Worker<Long> write = hold(() -> {
            out.write(DATA);
            out.close();
            return System.nanoTime();
        });
        Worker<Long> read = hold(() -> {
            in.readFully(new byte[DATA.length]);
            in.close();
            return System.nanoTime();
        });
        long backstops = TestGates.backstops();
        long death = System.nanoTime();
        daemon.close();
        assertTrue(write.result() - death < TimeUnit.SECONDS.toNanos(1));
        assertTrue(read.result() - death < TimeUnit.SECONDS.toNanos(1));
        assertEquals(backstops, TestGates.backstops());
        assertArrayEquals(DATA, Files.readAllBytes(new File(local, "out").toPath()));
    }

    @Test
    void withoutADaemonNothingWaits() throws Exception {
        daemon.close();
        fs = fileSystem(CONTAINER, local.getPath());
        long waits = TestGates.waits();
        copy(fs.getRaw(), path("a"), path("b"));
        assertTrue(TestGates.isConnecting());
        assertEquals(waits, TestGates.waits());
        assertEquals(0, TestGates.streamsOpen());
    }

    private static void copy(FileSystem fs, Path first, Path second) throws Exception {
        try (FSDataOutputStream out = fs.create(first)) {
            out.write(DATA);
        }
        byte[] all = new byte[DATA.length];
        try (FSDataInputStream in = fs.open(first); FSDataOutputStream out = fs.create(second)) {
            in.readFully(all);
            out.write(all);
        }
        assertArrayEquals(DATA, all);
    }

    @Test
    void filesOutsideAreUntouched() throws Exception {
        connect();
        java.nio.file.Path outside = Files.createDirectory(directory.resolve("localx"));
        copy(fs.getRaw(), new Path(outside + "/a"), new Path(outside + "/b"));
        copy(fs, new Path(outside + "/c"), new Path(outside + "/d"));
        copy(fs, new Path(local + "/../localx/e"), new Path(outside + "/f"));
        Files.createSymbolicLink(local.toPath().resolve("link"), outside);
        copy(fs.getRaw(), path("link/g"), path("link/h"));
        assertEquals(0, TestGates.streamsOpen());

        Files.createSymbolicLink(outside.resolve("back"), local.toPath());
        daemon.generous = true;
        fs.getRaw().create(new Path(outside + "/back/i")).close();
        assertEquals(local + "/i", daemon.next(TestDaemon.OPEN).block()); // the first announced file
    }

    @Test
    void aLinkToTheLocalDirectoryGovernsWhatIsBehindIt() throws Exception {
        Files.createSymbolicLink(directory.resolve("alias"), local.toPath());
        fs = fileSystem(CONTAINER, "relative, " + directory.resolve("alias") + ",/nowhere/else");
        assertEquals(List.of(local + "/", "/nowhere/else/"), daemon.next(TestDaemon.HELLO).directories());
        await(TestGates::isEnforcing);
        daemon.generous = true;
        fs.getRaw().create(new Path(directory + "/alias/x")).close();
        assertEquals(local + "/x", daemon.next(TestDaemon.OPEN).block());
    }

    @Test
    void theConfigurationKnowsTheLocalDirectoriesToo() throws Exception {
        conf.set("yarn.nodemanager.local-dirs", local.toURI().toString());
        fs = fileSystem(CONTAINER, null);
        assertEquals(List.of(local + "/"), daemon.next(TestDaemon.HELLO).directories());
    }

    @Test
    void outsideAContainerItIsALocalFileSystem() throws Exception {
        conf.set("mapreduce.cluster.local.dir", local.getPath());
        for (String container : new String[] {null, "", "container_1", "application_1700000000000_0042"}) {
            copy(fileSystem(container, local.getPath()).getRaw(), path("a"), path("b"));
        }
        conf.unset("mapreduce.cluster.local.dir");
        copy(fileSystem(CONTAINER, null).getRaw(), path("a"), path("b"));
        copy(fileSystem(CONTAINER, "").getRaw(), path("a"), path("b"));
        assertFalse(TestGates.isConnecting());
        assertTrue(Thread.getAllStackTraces().keySet().stream().noneMatch(t -> t.getName().startsWith("penstock")));
    }

    @Test
    void checksumFilesAreGovernedToo() throws Exception {
        connect();
        daemon.generous = true;
        copy(fs, path("a"), path("b"));
        assertEquals(local + "/a", daemon.next(TestDaemon.OPEN).block());
        assertEquals(local + "/.a.crc", daemon.next(TestDaemon.OPEN).block());
        assertTrue(new File(local, ".b.crc").exists());
    }

    @Test
    void nativeCodeGetsTheDescriptor() throws Exception {
        file("in", DATA);
        connect();
        try (FSDataInputStream in = fs.getRaw().open(path("in"))) {
            assertNotNull(in.getFileDescriptor());
            assertTrue(in.getFileDescriptor().valid());
        }
        try (FSDataInputStream in = fs.getRaw().open(path("in"))) {
            assertNotNull(in.getIOStatistics());
        }
    }
}
