package penstock.spark;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.IndexShuffleBlockResolver;
import org.apache.spark.shuffle.sort.io.LocalDiskShuffleMapOutputWriter;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import penstock.core.TestDaemon.Heard;
import penstock.core.TestDaemon;
import penstock.core.TestGates;

/** Tests which frames the daemon receives about an executor's files, and when. */
@Timeout(60)
class LocalFilesTest extends InAnExecutor {
    private static final byte[] DATA = new byte[6 << 20];

    static {
        new Random(1).nextBytes(DATA);
    }

    private File file;
    private Path merged;

    @BeforeEach
    void spill() throws Exception {
        daemon.generous = true;
        file = Files.write(Files.createTempFile(MANAGER, "temp_shuffle", ""), DATA).toFile();
        merged = Files.createTempFile(DIRECTORY, "merged", "");
    }

    @AfterEach
    void enforceAgain() throws Exception {
        assertEquals(0, TestGates.streamsOpenSoon());
        daemon.mode = TestDaemon.ENFORCE;
        while (!TestGates.isEnforcing()) {
            Thread.onSpinWait();
        }
    }

    private List<Heard> opens() {
        return daemon.heard().stream().filter(h -> h.type() == TestDaemon.OPEN && h.block().equals(file.getPath()))
                .collect(Collectors.toList());
    }

    /** Each byte of the file is announced once. */
    private void inOrder(List<Heard> opens) {
        long end = 0;
        for (Heard h : opens) {
            assertEquals(end, h.from());
            end = h.to();
        }
        assertEquals(DATA.length, end);
    }

    @Test
    void aSpillsReaderAsksAhead() throws Exception {
        int batch = 100_000;
        LocalFile carried = null;
        Object reader = new Object();
        long announced = 0;
        List<Heard> all = new ArrayList<>();
        for (int from = 0; from < DATA.length; from += batch) {
            int to = Math.min(from + batch, DATA.length);
            carried = LocalFiles.batch(carried, reader, file, from, to, DATA.length);
            for (Heard h : opens()) {
                all.add(h);
                announced = h.to();
            }
            assertTrue(announced >= to);
            assertEquals(to < DATA.length, carried != null);
        }
        assertEquals(0, TestGates.streamsOpenSoon());
        all.addAll(opens());
        inOrder(all);
        assertTrue(all.size() < DATA.length / batch / 5, all.size() + " windows");
    }

    @Test
    void aSpillOfOneBatchIsOneStream() throws Exception {
        assertNull(LocalFiles.batch(null, this, file, 0, DATA.length, DATA.length));
        assertEquals(0, TestGates.streamsOpenSoon());
        assertEquals(1, opens().size());
    }

    @Test
    void aSpillsReaderThatIsDroppedIsClosed() throws Exception {
        assertNotNull(LocalFiles.batch(null, new Object(), file, 0, 1000, DATA.length));
        assertTrue(TestGates.streamsOpen() > 0);
        while (TestGates.streamsOpen() > 0) {
            System.gc();
            Unclosed.closeAll();
        }
        assertEquals(0, Unclosed.open());
    }

    /** With more readers than may have staged data ahead, each reader still waits at its gate. */
    @Test
    void onlySoManyReadersAskAhead() throws Exception {
        List<Object> readers = new ArrayList<>();
        List<LocalFile> carried = new ArrayList<>();
        for (int i = 0; i < LocalFiles.MAX_AHEAD; i++) {
            readers.add(new Object());
            carried.add(LocalFiles.batch(null, readers.get(i), file, 0, 10, DATA.length));
        }
        assertFalse(carried.contains(null));
        assertEquals(LocalFiles.MAX_AHEAD, opens().size());
        assertNull(LocalFiles.batch(null, new Object(), file, 5, 10, DATA.length));
        Heard late = opens().get(0);
        assertEquals(5, late.from());
        assertEquals(10, late.to());
        carried.forEach(c -> c.close(false));
        assertEquals(LocalFiles.MAX_AHEAD, readers.size());
        assertEquals(0, Unclosed.open());
    }

    @Test
    void aMergeAnnouncesASpillOnce() throws Exception {
        int part = 150_000;
        try (FileChannel in = FileChannel.open(file.toPath());
                FileChannel out = FileChannel.open(merged, StandardOpenOption.WRITE)) {
            for (int start = 0; start < DATA.length; start += part) {
                copy(in, out, start, Math.min(part, DATA.length - start));
            }
        }
        assertArrayEquals(DATA, Files.readAllBytes(merged));
        assertEquals(0, TestGates.streamsOpenSoon());
        List<Heard> opens = opens();
        inOrder(opens);
        assertTrue(opens.size() < DATA.length / part / 3, opens.size() + " windows");
    }

    /** Copies as Spark does: after the agent's copy, Spark copies the rest itself. */
    private static void copy(FileChannel in, FileChannel out, long start, long count) throws IOException {
        long done = LocalFiles.copy(in, out, start, count);
        while (done < count) {
            done += in.transferTo(start + done, count - done, out);
        }
    }

    @Test
    void aMergeThatFailsLeavesNothingToTheNext() throws Exception {
        try (FileChannel in = FileChannel.open(file.toPath());
                FileChannel out = FileChannel.open(merged, StandardOpenOption.WRITE)) {
            copy(in, out, 0, 1000);
        }
        assertTrue(TestGates.streamsOpen() > 0);
        try (FileChannel in = FileChannel.open(file.toPath());
                FileChannel out = FileChannel.open(merged, StandardOpenOption.WRITE)) {
            copy(in, out, 0, DATA.length);
        }
        assertArrayEquals(DATA, Files.readAllBytes(merged));
        assertEquals(0, TestGates.streamsOpenSoon());
    }

    /** Spark's resolver of block names, with the files of this test. */
    private final class Resolver extends IndexShuffleBlockResolver {
        boolean heardBefore;

        Resolver() {
            super(new SparkConf(false));
        }

        @Override
        public File getDataFile(int shuffle, long map) {
            return MANAGER.resolve("shuffle_" + shuffle + "_" + map + "_0.data").toFile();
        }

        @Override
        public File createTempFile(File last) {
            return file;
        }

        @Override
        public void writeMetadataFileAndCommit(int shuffle, long map, long[] lengths, long[] checksums, File made) {
            heardBefore = opens().size() == 1;
            assertTrue(made.renameTo(getDataFile(shuffle, map)));
        }
    }

    /** The same holds for a map in observe mode that is written in an instant. */
    @Test
    void anOutputIsOpenedBeforeItIsRenamed() throws Exception {
        daemon.mode = TestDaemon.OBSERVE;
        while (TestGates.isEnforcing()) {
            Thread.onSpinWait();
        }
        for (int map = 0; map < 100; map++) {
            Files.deleteIfExists(file.toPath());
            Resolver resolver = new Resolver();
            MapOutput output = new MapOutput(new LocalDiskShuffleMapOutputWriter(1, map, 1, resolver,
                    new SparkConf(false)), TimeUnit.SECONDS.toNanos(20));
            try (OutputStream out = output.getPartitionWriter(0).openStream()) {
                out.write(DATA, 0, 1000);
            }
            output.commitAllPartitions(new long[0]);
            assertTrue(resolver.heardBefore);
            assertEquals(1000, resolver.getDataFile(1, map).length());
        }
    }

    /** A daemon that does not answer delays a commit by that time, and no longer. */
    @Test
    void anOutputIsRenamedAllTheSame() throws Exception {
        daemon.mode = TestDaemon.OBSERVE;
        daemon.generous = false;
        while (TestGates.isEnforcing()) {
            Thread.onSpinWait();
        }
        Files.delete(file.toPath());
        Resolver resolver = new Resolver();
        MapOutput output = new MapOutput(new LocalDiskShuffleMapOutputWriter(2, 0, 1, resolver, new SparkConf(false)),
                MapOutput.OPENING_NANOS);
        try (OutputStream out = output.getPartitionWriter(0).openStream()) {
            out.write(DATA, 0, 1000);
        }
        long begun = System.nanoTime();
        output.commitAllPartitions(new long[0]);
        assertTrue(System.nanoTime() - begun >= MapOutput.OPENING_NANOS);
        assertEquals(1000, resolver.getDataFile(2, 0).length());
    }
}
