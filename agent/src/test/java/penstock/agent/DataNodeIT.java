package penstock.agent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.commons.io.FileUtils;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.datatransfer.BlockConstructionStage;
import org.apache.hadoop.hdfs.protocol.datatransfer.Sender;
import org.apache.hadoop.hdfs.server.datanode.CachingStrategy;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.util.DataChecksum;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import penstock.core.Frames;
import penstock.core.TestDaemon.Heard;
import penstock.core.TestDaemon;

/** Tests the packed jar in a real DataNode, with a daemon that each test controls. */
@Timeout(60)
class DataNodeIT {
    private static final String APPLICATION = "application_1700000000000_0042";
    private static final byte[] DATA = new byte[3 << 20];

    private static Path directory;
    private static TestDaemon daemon;
    private static SmallHdfs hdfs;
    private static FileSystem shell;
    private static FileSystem task;

    @BeforeAll
    static void start() throws Exception {
        new Random(1).nextBytes(DATA);
        directory = Files.createTempDirectory("penstock");
        daemon = new TestDaemon(directory.resolve("s"), Frames.ENFORCE);
        daemon.generous = true;
        hdfs = new SmallHdfs(directory, daemon.socket, List.of());
        daemon.report = hdfs::stacks;
        shell = hdfs.client("");
        task = hdfs.client("attempt_1700000000000_0042_m_000000_0");
        Heard hello = daemon.next(Frames.HELLO);
        assertEquals(List.of(directory.resolve("data") + "/"), withSlash(hello.directories()));
        assertEquals(4096, hello.threads());
    }

    private static List<String> withSlash(List<String> paths) {
        List<String> all = new ArrayList<>();
        paths.forEach(p -> all.add(p.endsWith("/") ? p : p + "/"));
        return all;
    }

    @AfterAll
    static void stop() throws Exception {
        if (hdfs != null) {
            hdfs.close();
        }
        daemon.close();
        FileUtils.deleteDirectory(directory.toFile());
    }

    /**
     * Waits for all frames of the previous test, including its last CLOSE, so that no test receives another test's
     * frames.
     */
    @BeforeEach
    void forget() throws Exception {
        daemon.generous = true;
        while (!hdfs.bean().contains("\"StreamsOpen\" : 0,")) {
            hdfs.check();
        }
        daemon.forget();
    }

    /** The refusal has the effect of too many threads in a DataNode: nothing breaks, and the client tries again. */
    @Test
    void aRefusedReadIsTriedAgainByItsClient() throws Exception {
        write(task, "/refused");
        daemon.until(Frames.CLOSE);
        daemon.generous = false;
        FutureTask<byte[]> reading = run(() -> read(task, "/refused"));
        Heard open = daemon.next(Frames.OPEN);
        assertTrue(open.refusable());
        assertEquals(45_000, open.patience());
        daemon.mark(open.stream(), Frames.REFUSED);
        List<Heard> frames = daemon.until(Frames.CLOSE);
        Heard close = frames.remove(frames.size() - 1);
        assertEquals(open.stream(), close.stream());
        assertEquals(open.from(), close.position());
        assertTrue(close.failed());
        // There is no other replica, so the client tries the same DataNode again after a pause of up to 3 s. It may be so
        // short that the OPEN of the second read comes before the CLOSE of the first one.
        Heard early = frames.stream().filter(h -> h.type() == Frames.OPEN).findFirst().orElse(null);
        Heard again = early != null ? early : daemon.next(Frames.OPEN);
        daemon.mark(again.stream(), Long.MAX_VALUE);
        assertArrayEquals(DATA, reading.get(20, TimeUnit.SECONDS));
        assertTrue(hdfs.bean().contains("\"RefusedReads\" : 1,"), hdfs.bean());
        assertTrue(hdfs.bean().contains("\"Suppressed\" : 0"), hdfs.bean());
    }

    private static void write(FileSystem fs, String name) throws IOException {
        SmallHdfs.write(fs, name, DATA);
    }

    private static byte[] read(FileSystem fs, String name) throws IOException {
        return SmallHdfs.read(fs, name, DATA.length);
    }

    private static <T> FutureTask<T> run(Callable<T> body) {
        FutureTask<T> task = new FutureTask<>(body);
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
        return task;
    }

    @Test
    void anOperationIsNamedAndFollowedFromOpenToClose() throws Exception {
        write(task, "/named");
        Heard open = daemon.next(Frames.OPEN);
        assertTrue(open.write());
        assertEquals(APPLICATION, open.flow());
        assertEquals(0, open.from());
        assertTrue(open.peer().client.matches("127\\.0\\.0\\.1:[0-9]+"), open.peer().client);
        assertTrue(open.peer().server.matches("127\\.0\\.0\\.1:[0-9]+"), open.peer().server);
        assertEquals("", open.peer().user); // no tokens here
        assertTrue(open.block().startsWith(directory.resolve("data/current") + "/"), open.block());
        assertTrue(open.block().contains("/rbw/blk_"), open.block());
        assertTrue(open.meta().startsWith(open.block()) && open.meta().endsWith(".meta"), open.meta());
        List<Heard> frames = daemon.until(Frames.CLOSE);
        assertTrue(frames.size() > 1, "no progress was sent");
        Heard close = frames.get(frames.size() - 1);
        assertEquals(open.stream(), close.stream());
        assertEquals(DATA.length, close.position());
        assertFalse(close.failed());

        assertArrayEquals(DATA, read(shell, "/named"));
        open = daemon.next(Frames.OPEN);
        assertFalse(open.write());
        assertEquals("clients", open.flow());
        assertTrue(open.block().contains("/finalized/"), open.block());
        assertTrue(Files.exists(Path.of(open.block())) && Files.exists(Path.of(open.meta())));
        assertEquals(0, open.from());
        assertEquals(DATA.length, open.to());
        assertEquals(DATA.length, daemon.next(Frames.CLOSE).position());

        try (OutputStream out = shell.append(new org.apache.hadoop.fs.Path("/named"))) {
            out.write(7);
        }
        open = daemon.next(Frames.OPEN);
        assertTrue(open.write());
        assertEquals(DATA.length, open.from());
        assertEquals(DATA.length + 1, daemon.next(Frames.CLOSE).position());

        try (FSDataInputStream in = task.open(new org.apache.hadoop.fs.Path("/named"))) {
            byte[] some = new byte[1000];
            in.readFully(1 << 20, some);
            assertArrayEquals(Arrays.copyOfRange(DATA, 1 << 20, (1 << 20) + 1000), some);
        }
        open = daemon.next(Frames.OPEN);
        assertEquals(APPLICATION, open.flow());
        assertEquals(1 << 20, open.from());
        assertTrue(hdfs.bean().contains("\"State\" : \"woven\""), hdfs.bean());
        assertTrue(hdfs.bean().contains("\"Suppressed\" : 0"), hdfs.bean());
    }

    /**
     * While a reader and a writer wait at their gates, other operations on the DataNode's dataset must not be delayed.
     */
    @Test
    void whoIsHeldHoldsNoLock() throws Exception {
        write(shell, "/held");
        daemon.until(Frames.CLOSE);
        daemon.generous = false;
        FutureTask<byte[]> reader = run(() -> read(task, "/held"));
        Heard reading = daemon.next(Frames.OPEN, h -> !h.write());
        FutureTask<Void> writer = run(() -> {
            write(task, "/held too");
            return null;
        });
        Heard writing = daemon.next(Frames.OPEN, Heard::write);

        List<String> held;
        do {
            held = heldThreads();
            assertFalse(reader.isDone() || writer.isDone());
        } while (held.size() < 2);
        Pattern datasets = Pattern.compile("- locked <.*(fsdataset|DataSetLock|concurrent\\.locks)");
        for (String thread : held) {
            assertFalse(datasets.matcher(thread).find(), thread);
            assertTrue(thread.contains("Locked ownable synchronizers:\n\t- None"), thread);
        }
        // A thread dump does not show read locks. These operations need the write lock, so they prove that no read lock
        // is held.
        daemon.generous = true;
        FutureTask<byte[]> others = run(() -> {
            write(shell, "/free");
            byte[] all = read(shell, "/free");
            shell.delete(new org.apache.hadoop.fs.Path("/free"), false);
            return all;
        });
        assertArrayEquals(DATA, others.get(20, TimeUnit.SECONDS));
        assertFalse(reader.isDone() || writer.isDone());

        daemon.mark(reading.stream(), Long.MAX_VALUE);
        daemon.mark(writing.stream(), Long.MAX_VALUE);
        assertArrayEquals(DATA, reader.get(20, TimeUnit.SECONDS));
        writer.get(20, TimeUnit.SECONDS);
        assertArrayEquals(DATA, read(shell, "/held too"));
    }

    /** Returns the DataNode's threads that wait in a gate, from the JVM's own thread dump. */
    private static List<String> heldThreads() throws Exception {
        Process dump = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "jcmd").toString(),
                Long.toString(hdfs.dataNode().pid()), "Thread.print", "-l").redirectErrorStream(true).start();
        String all = new String(dump.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        List<String> held = new ArrayList<>();
        for (String thread : all.split("\n(?=\")")) {
            if (thread.contains("penstock.core.Gates.await")) {
                held.add(thread);
            }
        }
        return held;
    }

    @Test
    void theDataNodeOutlivesItsDaemon() throws Exception {
        write(shell, "/survives");
        daemon.until(Frames.CLOSE);
        daemon.generous = false;
        FutureTask<byte[]> reader = run(() -> read(task, "/survives"));
        daemon.next(Frames.OPEN);
        while (heldThreads().isEmpty()) {
            assertFalse(reader.isDone());
        }
        Path socket = daemon.socket;
        daemon.close();
        assertArrayEquals(DATA, reader.get(5, TimeUnit.SECONDS));
        write(task, "/ungoverned");
        assertArrayEquals(DATA, read(shell, "/ungoverned"));

        daemon = new TestDaemon(socket, Frames.ENFORCE);
        daemon.generous = true;
        daemon.next(Frames.HELLO);
        while (!hdfs.bean().contains("\"Mode\" : \"enforce\"")) {
            hdfs.check();
        }
        assertArrayEquals(DATA, read(task, "/ungoverned"));
        assertEquals(APPLICATION, daemon.next(Frames.OPEN).flow());
    }

    /**
     * Sends the requests of a DataNode that reconstructs a striped block, by Hadoop's own protocol: without a client
     * name, and for a write without a caching strategy.
     */
    @Test
    void reconstructionIsToldFromReplication() throws Exception {
        write(shell, "/whole");
        DistributedFileSystem fs = (DistributedFileSystem) shell;
        ExtendedBlock whole = fs.getClient().getLocatedBlocks("/whole", 0).get(0).getBlock();
        daemon.until(Frames.CLOSE);
        CachingStrategy open = CachingStrategy.newDefaultStrategy();
        Heard read = opened(sender -> sender.readBlock(whole, new Token<>(), "", 0, DATA.length, true, open));
        assertFalse(read.write());
        assertEquals("reconstruction", read.flow());
        assertTrue(read.peer().client.startsWith("127.0.0.1:"), read.peer().client);
        daemon.until(Frames.CLOSE);

        CachingStrategy copying = new CachingStrategy(true, 4L << 20);
        long striped = -9223372036854775792L;
        for (Object[] c : new Object[][] {{striped, open, "reconstruction"}, {striped + 16, copying, "replication"},
                {4_000_000_000L, open, "replication"}}) {
            ExtendedBlock block = new ExtendedBlock(whole.getBlockPoolId(), (long) c[0], 0, 1001);
            DatanodeInfo target = fs.getDataNodeStats()[0];
            Heard write = opened(sender -> sender.writeBlock(block, StorageType.DISK, new Token<>(), "",
                    new DatanodeInfo[] {target}, new StorageType[] {StorageType.DISK}, target,
                    BlockConstructionStage.PIPELINE_SETUP_CREATE, 0, 0, 0, 0,
                    DataChecksum.newDataChecksum(DataChecksum.Type.CRC32C, 512), (CachingStrategy) c[1], false, false,
                    null, "", new String[] {""}));
            assertTrue(write.write() && write.block().endsWith("blk_" + c[0]), write.block());
            assertEquals(c[2], write.flow());
            daemon.until(Frames.CLOSE);
        }
    }

    private interface Request {
        void to(Sender sender) throws IOException;
    }

    /** Sends the request, and disconnects when the DataNode has begun to process it. */
    private static Heard opened(Request request) throws Exception {
        int port = ((DistributedFileSystem) shell).getDataNodeStats()[0].getXferPort();
        try (Socket socket = new Socket("127.0.0.1", port)) {
            request.to(new Sender(new DataOutputStream(socket.getOutputStream())));
            return daemon.next(Frames.OPEN);
        }
    }
}
