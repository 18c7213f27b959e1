package penstock.task;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.commons.io.FileUtils;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import penstock.core.TestDaemon;
import penstock.core.TestGates;

/**
 * Compares the governed file system with its model, Hadoop's own local file system. The same random operations run on
 * both, in separate directories, and every result, position, exception and byte must be the same. Only the smallest
 * buffer differs, so the model is used with that buffer.
 */
@Timeout(120)
class SameAsPlainTest {
    private static final int FILES = 4;
    private static final int OPERATIONS = 1500;

    private java.nio.file.Path directory;
    private TestDaemon daemon;
    private long failures;

    @BeforeEach
    void begin() throws Exception {
        directory = Files.createTempDirectory("penstock").toRealPath();
        daemon = new TestDaemon(directory.resolve("s"), TestDaemon.ENFORCE);
        daemon.generous = true;
        failures = TestGates.failures();
    }

    @AfterEach
    void end() throws Exception {
        TestGates.reset();
        daemon.close();
        FileUtils.deleteDirectory(directory.toFile());
        assertEquals(failures, TestGates.failures());
    }

    private static final Set<String> READING = Set.of("read", "readByte", "readFully", "readNonsense", "seek",
            "seekBack", "skip", "available", "mark", "pread", "preadFully", "preadNonsense", "vectored", "noVectors",
            "readahead",
            "dropBehind", "descriptor", "inCapabilities", "inStatistics", "closeInTwice");
    private static final Set<String> WRITING = Set.of("write", "writeByte", "writeNonsense", "flush",
            "outCapabilities");

    /** One of the two file systems, with its directory and its open files. */
    private static final class Side {
        final FileSystem fs;
        final String root;
        /** The smallest buffer that is requested. */
        final int leastBuffer;
        final FSDataInputStream[] in = new FSDataInputStream[FILES];
        final FSDataOutputStream[] out = new FSDataOutputStream[FILES];

        Side(FileSystem fs, java.nio.file.Path root, int leastBuffer) throws Exception {
            this.fs = fs;
            this.leastBuffer = leastBuffer;
            this.root = Files.createDirectory(root).toString();
        }

        int buffer(int size) {
            return Math.max(leastBuffer, size);
        }

        int buffer(Random random) {
            return buffer(new int[] {1, 100, 4096, 65_536, 1 << 20}[random.nextInt(5)]);
        }

        Path path(int n) {
            return new Path(root, n == 0 ? "d/e/f0" : "f" + n);
        }
    }

    /** One operation; both sides get a random generator in the same state. */
    private interface Operation {
        Object on(Side side, int n, Random random) throws Exception;
    }

    private final Map<String, Operation> operations = new TreeMap<>();
    private final List<Integer> lengths = List.of(0, 1, 7, 511, 512, 4095, 4096, 4097, 65_536, 70_000, 300_000);

    private int length(Random random) {
        return lengths.get(random.nextInt(lengths.size()));
    }

    private static byte[] bytes(Random random, int length) {
        byte[] bytes = new byte[length];
        random.nextBytes(bytes);
        return bytes;
    }

    private void define(boolean raw) {
        operations.put("create", (s, n, r) -> {
            closeOut(s, n);
            s.out[n] = s.fs.create(s.path(n), r.nextBoolean(), s.buffer(r));
            return s.out[n].getPos();
        });
        operations.put("createWithPermission", (s, n, r) -> {
            closeOut(s, n);
            s.out[n] = s.fs.create(s.path(n), new FsPermission((short) (r.nextBoolean() ? 0600 : 0640)), true,
                    s.buffer(4096), (short) 1, 1 << 20, null);
            return s.fs.getFileStatus(s.path(n)).getPermission();
        });
        operations.put("createNonRecursive", (s, n, r) -> {
            closeOut(s, n);
            s.out[n] = s.fs.createNonRecursive(s.path(n), FsPermission.getFileDefault(),
                    r.nextBoolean() ? EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE)
                            : EnumSet.of(CreateFlag.CREATE),
                    s.buffer(r), (short) 1, 1 << 20, null);
            return null;
        });
        operations.put("append", (s, n, r) -> {
            closeOut(s, n);
            s.out[n] = s.fs.append(s.path(n), s.buffer(r));
            return s.out[n].getPos();
        });
        for (int i = 0; i < 4; i++) {
            operations.put("write" + i, (s, n, r) -> {
                byte[] b = bytes(r, length(r));
                s.out[n].write(b, b.length / 3, b.length - b.length / 3);
                return s.out[n].getPos();
            });
        }
        operations.put("writeByte", (s, n, r) -> {
            s.out[n].write(r.nextInt());
            return s.out[n].getPos();
        });
        operations.put("writeNonsense", (s, n, r) -> {
            s.out[n].write(new byte[10], 5, 10 + r.nextInt(5000));
            return null;
        });
        operations.put("flush", (s, n, r) -> {
            switch (r.nextInt(3)) {
                case 0:
                    s.out[n].flush();
                    break;
                case 1:
                    s.out[n].hflush();
                    break;
                default:
                    s.out[n].hsync();
            }
            return s.fs.getFileStatus(s.path(n)).getLen();
        });
        operations.put("closeOut", (s, n, r) -> {
            closeOut(s, n);
            return s.fs.getFileStatus(s.path(n)).getLen();
        });
        operations.put("outCapabilities", (s, n, r) -> s.out[n].hasCapability("hsync") + " "
                + s.out[n].hasCapability("iostatistics") + " " + s.out[n].hasCapability("x") + " "
                + counters(s.out[n].getIOStatistics()));
        operations.put("open", (s, n, r) -> {
            closeIn(s, n);
            s.in[n] = r.nextBoolean() ? s.fs.open(s.path(n), s.buffer(r)) : s.fs.openFile(s.path(n)).build().get();
            return s.in[n].getPos();
        });
        for (int i = 0; i < 4; i++) {
            operations.put("read" + i, (s, n, r) -> {
                byte[] b = new byte[length(r) + 3];
                int got = s.in[n].read(b, 3, b.length - 3);
                return Arrays.hashCode(b) + " " + got + " at " + s.in[n].getPos();
            });
        }
        operations.put("readByte", (s, n, r) -> s.in[n].read() + " at " + s.in[n].getPos());
        operations.put("readFully", (s, n, r) -> {
            byte[] b = new byte[length(r)];
            s.in[n].readFully(b);
            return Arrays.hashCode(b) + " at " + s.in[n].getPos();
        });
        operations.put("readNonsense", (s, n, r) -> s.in[n].read(new byte[10], 5, 10 + r.nextInt(5000)));
        operations.put("seek", (s, n, r) -> {
            s.in[n].seek(r.nextInt(400_000) - 5);
            return s.in[n].getPos();
        });
        operations.put("seekBack", (s, n, r) -> {
            s.in[n].seek(Math.max(0, s.in[n].getPos() - r.nextInt(10_000)));
            return s.in[n].getPos();
        });
        operations.put("skip", (s, n, r) -> s.in[n].skip(length(r) - 3) + " at " + s.in[n].getPos());
        operations.put("available", (s, n, r) -> s.in[n].available());
        operations.put("mark", (s, n, r) -> {
            s.in[n].mark(100);
            byte[] b = new byte[50];
            int got = s.in[n].read(b);
            s.in[n].reset();
            return s.in[n].markSupported() + " " + got + Arrays.hashCode(b) + " at " + s.in[n].getPos();
        });
        operations.put("pread", (s, n, r) -> {
            byte[] b = new byte[length(r)];
            int got = s.in[n].read(r.nextInt(400_000) - 5, b, 0, b.length);
            return Arrays.hashCode(b) + " " + got + " at " + s.in[n].getPos();
        });
        operations.put("preadFully", (s, n, r) -> {
            byte[] b = new byte[length(r)];
            s.in[n].readFully(r.nextInt(200_000) - 5, b);
            return Arrays.hashCode(b) + " at " + s.in[n].getPos();
        });
        operations.put("preadNonsense", (s, n, r) -> s.in[n].read(0, new byte[10], 5, 10));
        operations.put("vectored", (s, n, r) -> {
            List<FileRange> ranges = new ArrayList<>();
            int at = 0;
            for (int i = 1 + r.nextInt(5); i > 0; i--) {
                at += r.nextInt(100_000);
                int length = 1 + r.nextInt(20_000);
                ranges.add(r.nextInt(5) == 0 ? ranges.size() : 0, FileRange.createFileRange(at, length));
                at += length;
            }
            s.in[n].readVectored(ranges, ByteBuffer::allocate);
            StringBuilder all = new StringBuilder();
            for (FileRange range : ranges) {
                try {
                    all.append(range.getData().get().hashCode()).append(' ');
                } catch (ExecutionException e) {
                    all.append(e.getCause().getClass()).append(' ');
                }
            }
            return all;
        });
        operations.put("noVectors", (s, n, r) -> {
            s.in[n].readVectored(r.nextBoolean() ? List.of() : List.of(FileRange.createFileRange(-1, 5)),
                    ByteBuffer::allocate);
            return null;
        });
        operations.put("readahead", (s, n, r) -> {
            s.in[n].setReadahead(1L << 20);
            return null;
        });
        operations.put("dropBehind", (s, n, r) -> {
            s.in[n].setDropBehind(true);
            return null;
        });
        operations.put("descriptor", (s, n, r) -> s.in[n].getFileDescriptor() == null ? "none"
                : s.in[n].getFileDescriptor().valid());
        operations.put("inCapabilities", (s, n, r) -> s.in[n].hasCapability("iostatistics") + " "
                + s.in[n].hasCapability("in:readvectored") + " " + s.in[n].hasCapability("x") + " "
                + s.in[n].minSeekForVectorReads() + " " + s.in[n].maxReadSizeForVectorReads() + " "
                + s.in[n].getWrappedStream().getClass());
        if (raw) {
            operations.put("inStatistics", (s, n, r) -> counters(s.in[n].getIOStatistics()));
        }
        operations.put("closeIn", (s, n, r) -> {
            closeIn(s, n);
            return null;
        });
        operations.put("closeInTwice", (s, n, r) -> {
            s.in[n].close();
            s.in[n].close();
            return s.in[n].read();
        });
        operations.put("rename", (s, n, r) -> s.fs.rename(s.path(n), s.path(r.nextInt(FILES))));
        operations.put("delete", (s, n, r) -> s.fs.delete(s.path(n), r.nextBoolean()));
        operations.put("deleteDirectory", (s, n, r) -> r.nextInt(5) == 0 && s.fs.delete(new Path(s.root, "d"), true));
        operations.put("status", (s, n, r) -> {
            FileStatus f = s.fs.getFileStatus(s.path(n));
            return f.getLen() + " " + f.isFile() + " " + f.getPermission() + " " + f.getOwner() + " "
                    + f.getBlockSize() + " " + s.fs.getFileBlockLocations(f, 0, 10).length;
        });
        operations.put("list", (s, n, r) -> Stream.of(s.fs.listStatus(new Path(s.root)))
                .map(f -> f.getPath().getName() + f.getLen()).sorted().toList());
        if (raw) { // with checksums, the file system does not distinguish open files
            operations.put("truncate", (s, n, r) -> s.fs.truncate(s.path(n), r.nextInt(100_000)));
        }
    }

    private static Object counters(IOStatistics statistics) {
        return statistics == null ? "none" : new TreeMap<>(statistics.counters());
    }

    private static void closeOut(Side s, int n) throws Exception {
        FSDataOutputStream out = s.out[n];
        s.out[n] = null;
        if (out != null) {
            out.close();
        }
    }

    private static void closeIn(Side s, int n) throws Exception {
        FSDataInputStream in = s.in[n];
        s.in[n] = null;
        if (in != null) {
            in.close();
        }
    }

    /**
     * Returns the operation, or one that must come before it, so that most operations find the file state that they
     * need.
     */
    private static String next(String name, Side side, int n, Random random) throws Exception {
        boolean exists = side.fs.exists(side.path(n));
        if (READING.contains(name.replaceAll("[0-9]", "")) && side.in[n] == null) {
            return exists ? "open" : "create";
        }
        if (WRITING.contains(name.replaceAll("[0-9]", "")) && side.out[n] == null) {
            return exists && random.nextBoolean() ? "append" : "create";
        }
        return name.startsWith("delete") && random.nextInt(5) > 0 ? "closeOut" : name;
    }

    /** Returns the operation's result or exception, without the name of the side's directory. */
    private static String outcome(Operation operation, Side side, int n, long seed) {
        String result;
        try {
            result = String.valueOf(operation.on(side, n, new Random(seed)));
        } catch (Exception | Error e) {
            result = e.getClass() + ": " + e.getMessage();
        }
        return result.replace(side.root, "ROOT");
    }

    @ParameterizedTest
    @CsvSource({"true, true, 1", "true, false, 1", "false, true, 1", "false, false, 1", "true, true, 65536",
            "false, true, 65536"})
    void randomOperations(boolean raw, boolean withDaemon, int leastBuffer) throws Exception {
        long seed = System.nanoTime();
        if (!withDaemon) {
            daemon.close();
        }
        Configuration conf = new Configuration(false);
        conf.set("penstock.socket", daemon.socket.toString());
        Configuration buffered = new Configuration(conf);
        buffered.setInt("io.file.buffer.size", Math.max(4096, leastBuffer));
        buffered.setInt("file.stream-buffer-size", Math.max(4096, leastBuffer)); // of checksum files
        LocalFileSystem plain = new LocalFileSystem();
        plain.initialize(FileSystem.getDefaultUri(conf), buffered);
        LocalFileSystem governed = new GovernedLocalFileSystem(new GovernedRaw(Map.of(
                "CONTAINER_ID", "container_1700000000000_0042_01_000002", "LOCAL_DIRS", directory.toString()),
                leastBuffer));
        governed.initialize(FileSystem.getDefaultUri(conf), conf);
        assertEquals(plain.getUri() + plain.getScheme(), governed.getUri() + governed.getScheme());

        Side a = new Side(raw ? plain.getRaw() : plain, directory.resolve("plain"), leastBuffer);
        Side b = new Side(raw ? governed.getRaw() : governed, directory.resolve("governed"), 1);
        long[][] before = {statistics(plain, new long[2]), statistics(governed, new long[2])};
        define(raw);
        List<String> names = new ArrayList<>(operations.keySet());
        Random random = new Random(seed);
        List<String> last = new ArrayList<>();
        for (int i = 0; i < OPERATIONS; i++) {
            int n = random.nextInt(FILES);
            String name = next(names.get(random.nextInt(names.size())), a, n, random);
            long own = random.nextLong();
            String expected = outcome(operations.get(name), a, n, own);
            last.add(i + " " + name + " " + n + " -> " + expected);
            assertEquals(expected, outcome(operations.get(name), b, n, own), () -> "seed " + seed + ", after\n"
                    + String.join("\n", last.subList(Math.max(0, last.size() - 30), last.size())) + "\n");
        }
        for (int n = 0; n < FILES; n++) {
            closeOut(a, n);
            closeOut(b, n);
            closeIn(a, n);
            closeIn(b, n);
        }
        sameTree(a.root, b.root, seed);
        long[] left = statistics(plain, before[0]);
        long[] right = statistics(governed, before[1]);
        assertArrayEquals(left, right, "seed " + seed);
        assertTrue(left[0] > 0 && left[1] > 0);
        if (withDaemon) {
            daemon.next(TestDaemon.OPEN, h -> h.block().startsWith(b.root));
            awaitNoStreams();
        }
    }

    private static void awaitNoStreams() {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (TestGates.streamsOpen() > 0) {
            assertTrue(System.nanoTime() < end, "streams left open");
            Thread.onSpinWait();
        }
    }

    /**
     * Returns the bytes read and written since before, from the statistics where MapReduce finds its counters (by
     * scheme and class).
     */
    @SuppressWarnings("deprecation")
    private static long[] statistics(LocalFileSystem fs, long[] before) {
        FileSystem.Statistics all = FileSystem.getStatistics("file", fs.getRaw().getClass());
        assertTrue(FileSystem.getAllStatistics().contains(all) && all.getScheme().equals("file"));
        return new long[] {all.getBytesRead() - before[0], all.getBytesWritten() - before[1]};
    }

    private static void sameTree(String left, String right, long seed) throws Exception {
        Map<String, byte[]> a = tree(left);
        Map<String, byte[]> b = tree(right);
        assertEquals(a.keySet(), b.keySet(), "seed " + seed);
        for (Map.Entry<String, byte[]> e : a.entrySet()) {
            assertArrayEquals(e.getValue(), b.get(e.getKey()), e.getKey() + ", seed " + seed);
        }
    }

    private static Map<String, byte[]> tree(String root) throws Exception {
        Map<String, byte[]> all = new TreeMap<>();
        try (Stream<java.nio.file.Path> files = Files.walk(java.nio.file.Path.of(root))) {
            for (java.nio.file.Path f : (Iterable<java.nio.file.Path>) files::iterator) {
                String name = java.nio.file.Path.of(root).relativize(f).toString();
                all.put(name, Files.isRegularFile(f) ? Files.readAllBytes(f) : new byte[0]);
            }
        }
        return all;
    }
}
