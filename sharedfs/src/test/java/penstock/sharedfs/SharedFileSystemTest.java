package penstock.sharedfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.io.IOUtils;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class SharedFileSystemTest {
    private final java.nio.file.Path mount = TestMount.create();
    private final Configuration conf = new Configuration();
    private FileSystem fs;

    @BeforeEach
    void start() throws IOException {
        TestMount.configure(conf, mount);
        fs = FileSystem.newInstance(URI.create("shared:///"), conf);
    }

    @AfterEach
    void stop() throws IOException {
        fs.close();
    }

    private void write(FileSystem to, String path, String text) throws IOException {
        try (FSDataOutputStream out = to.create(new Path(path), false)) {
            out.write(text.getBytes(StandardCharsets.UTF_8));
        }
    }

    private String read(String path) throws IOException {
        try (FSDataInputStream in = fs.open(new Path(path))) {
            return new String(IOUtils.readFullyToByteArray(in), StandardCharsets.UTF_8);
        }
    }

    @Test
    void ofManyWritersThatDoNotOverwriteOneSucceeds() throws Exception {
        int writers = 8;
        ExecutorService threads = Executors.newFixedThreadPool(writers);
        try {
            for (int round = 0; round < 20; round++) {
                String path = "/deep" + round + "/folder/file";
                CyclicBarrier start = new CyclicBarrier(writers);
                List<Future<String>> results = new ArrayList<>();
                for (int i = 0; i < writers; i++) {
                    String text = "writer " + i;
                    results.add(threads.submit(() -> {
                        start.await();
                        try {
                            write(fs, path, text);
                            return text;
                        } catch (FileAlreadyExistsException e) {
                            return null;
                        }
                    }));
                }
                List<String> winners = new ArrayList<>();
                for (Future<String> each : results) {
                    if (each.get() != null) {
                        winners.add(each.get());
                    }
                }
                assertEquals(List.of(read(path)), winners);
            }
        } finally {
            threads.shutdownNow();
        }
    }

    @Test
    void aFileHasTheTimeOfItsClose() throws IOException {
        Path file = new Path("/closed");
        long before = System.currentTimeMillis() - 1;
        try (FSDataOutputStream out = fs.create(file)) {
            out.write(1);
            out.hflush();
            fs.setTimes(file, 1000, -1);
        }
        long closed = fs.getFileStatus(file).getModificationTime();
        assertTrue(closed >= before && closed <= System.currentTimeMillis(), "" + closed);
    }

    @Test
    void aReplacedFileStaysWithItsReadersAndWriters() throws IOException {
        Path path = new Path("/file");
        write(fs, "/file", "old");
        FSDataInputStream reader = fs.open(path);
        FSDataOutputStream first = fs.create(path, true);
        FSDataOutputStream second = fs.create(path, true);
        second.write("second".getBytes(StandardCharsets.UTF_8));
        second.close();
        first.write("the first writer writes more".getBytes(StandardCharsets.UTF_8));
        first.close();
        assertEquals("second", read("/file"));
        assertEquals("old", new String(IOUtils.readFullyToByteArray(reader), StandardCharsets.UTF_8));
        reader.close();
        assertEquals(1, fs.listStatus(new Path("/")).length, "no temporary file is left");
    }

    @Test
    void permissionsAreThoseOfTheMount() throws IOException {
        conf.set("fs.permissions.umask-mode", "027");
        write(fs, "/file", "x");
        assertEquals("rw-r-----", fs.getFileStatus(new Path("/file")).getPermission().toString());
        fs.mkdirs(new Path("/a/b"), new FsPermission((short) 01777));
        assertEquals("rwxr-x---", fs.getFileStatus(new Path("/a/b")).getPermission().toString());
        assertEquals("rwxr-x---", fs.getFileStatus(new Path("/a")).getPermission().toString());
        fs.setPermission(new Path("/a/b"), new FsPermission((short) 01777));
        assertEquals("rwxrwxrwt", fs.getFileStatus(new Path("/a/b")).getPermission().toString());
        conf.set("fs.permissions.umask-mode", "000");
        write(fs, "/open", "x");
        assertEquals("rw-rw-rw-", fs.getFileStatus(new Path("/open")).getPermission().toString());
        assertEquals(Files.getOwner(mount).getName(), fs.getFileStatus(new Path("/open")).getOwner());
    }

    @Test
    void thePermissionOfAFolderKeepsWhatHadoopDoesNotKnow() throws IOException {
        fs.mkdirs(new Path("/group"));
        Files.setAttribute(mount.resolve("group"), "unix:mode", 02770);
        fs.setPermission(new Path("/group"), new FsPermission((short) 0750));
        assertEquals(02750, (int) Files.getAttribute(mount.resolve("group"), "unix:mode") & 07777);
    }

    @Test
    void namesWithColonsAndSpacesAndLinks() throws IOException {
        Files.writeString(mount.resolve("a: b"), "x");
        Files.createSymbolicLink(mount.resolve("link"), mount.resolve("a: b"));
        Files.createSymbolicLink(mount.resolve("nowhere"), mount.resolve("nothing"));
        FileStatus[] listed = fs.listStatus(new Path("/"));
        Arrays.sort(listed);
        assertEquals(List.of("shared:/a: b", "shared:/link"),
            Arrays.stream(listed).map(s -> s.getPath().toString()).toList());
        assertTrue(fs.delete(new Path("/link"), true));
        assertEquals("x", Files.readString(mount.resolve("a: b")));
    }

    @Test
    void aLinkToAFolderIsDeletedWithoutItsContents() throws IOException {
        write(fs, "/folder/file", "x");
        Files.createSymbolicLink(mount.resolve("link"), mount.resolve("folder"));
        assertTrue(fs.delete(new Path("/link"), true));
        assertEquals("x", read("/folder/file"));
    }

    @Test
    void aFolderThatBecomesALinkWhileItIsDeletedLeadsNowhere() throws Exception {
        int count = 5000;
        java.nio.file.Path outside = Files.createDirectories(mount.resolve("outside"));
        java.nio.file.Path inside = mount.resolve("top/inside");
        Files.createDirectories(inside);
        for (int i = 0; i < count; i++) {
            Files.createFile(inside.resolve("file" + i));
            Files.createFile(outside.resolve("file" + i));
        }
        Files.createSymbolicLink(mount.resolve("link"), outside);
        ExecutorService thread = Executors.newSingleThreadExecutor();
        try {
            Future<?> swapped = thread.submit(() -> {
                while (inside.toFile().list().length == count) {
                    Thread.onSpinWait(); // the deletion has not begun
                }
                Files.move(inside, mount.resolve("aside"));
                return Files.move(mount.resolve("link"), inside);
            });
            fs.delete(new Path("/top"), true);
            swapped.get();
        } finally {
            thread.shutdownNow();
        }
        assertEquals(count, outside.toFile().list().length);
        assertFalse(Files.exists(mount.resolve("top"), LinkOption.NOFOLLOW_LINKS));
    }

    @Test
    void aNameThatJavaCannotEncodeIsAnErrorThatSaysWhatToSet() throws Exception {
        ProcessBuilder builder = new ProcessBuilder(java.nio.file.Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "-cp", System.getProperty("java.class.path"), Creation.class.getName(), mount.toString());
        builder.environment().put("LC_ALL", "C");
        Process process = builder.redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor(), said);
        assertTrue(said.contains("Set LC_ALL=C.UTF-8"), said);
    }

    /** A program that creates a file whose name is not in ASCII, and prints the error. */
    static final class Creation {
        public static void main(String[] arguments) throws IOException {
            Configuration conf = new Configuration();
            conf.set(SharedFileSystem.MOUNT, arguments[0]);
            conf.setBoolean(SharedFileSystem.MOUNT_REQUIRED, false);
            try (FileSystem fs = FileSystem.newInstance(URI.create("shared:///"), conf)) {
                fs.create(new Path("/gr\u00fc\u00dfe")).close();
            } catch (IOException e) {
                System.out.println(e);
            }
        }
    }

    @Test
    void nothingIsAboveTheRoot() {
        assertThrows(IOException.class, () -> fs.open(new Path("shared:///../../etc/passwd")));
        assertThrows(IOException.class, () -> fs.listStatus(new Path("/..")));
    }

    @Test
    void renameReplacesInOneStepOnlyIfAsked() throws IOException {
        FileContext context = FileContext.getFileContext(URI.create("shared:///"), withFileContext());
        write(fs, "/a", "a");
        write(fs, "/b", "b");
        assertFalse(fs.rename(new Path("/a"), new Path("/b")));
        assertThrows(FileAlreadyExistsException.class, () -> context.rename(new Path("/a"), new Path("/b")));
        context.rename(new Path("/a"), new Path("/b"), Options.Rename.OVERWRITE);
        assertEquals("a", read("/b"));
        write(fs, "/full/file", "x");
        fs.mkdirs(new Path("/empty"));
        assertThrows(PathIsNotEmptyDirectoryException.class,
            () -> context.rename(new Path("/empty"), new Path("/full"), Options.Rename.OVERWRITE));
        context.rename(new Path("/full"), new Path("/empty"), Options.Rename.OVERWRITE);
        assertEquals("x", read("/empty/file"));
    }

    private Configuration withFileContext() {
        conf.set("fs.AbstractFileSystem.shared.impl", SharedFs.class.getName());
        return conf;
    }

    @Test
    void fileContextReadsAndWrites() throws IOException {
        FileContext context = FileContext.getFileContext(URI.create("shared:///"), withFileContext());
        Path path = new Path("/x/y");
        try (FSDataOutputStream out = context.create(path, EnumSet.of(CreateFlag.CREATE),
                Options.CreateOpts.createParent())) {
            out.writeUTF("hello");
        }
        try (FSDataOutputStream out = context.create(path, EnumSet.of(CreateFlag.APPEND))) {
            assertEquals(7, out.getPos());
            out.writeUTF("again");
        }
        try (FSDataInputStream in = context.open(path)) {
            assertEquals("hello", in.readUTF());
            assertEquals("again", in.readUTF());
        }
        assertThrows(FileNotFoundException.class, () -> context.open(new Path("/nothing")));
    }

    @Test
    void hflushShowsWhatIsWrittenAndSoDoesAFullBuffer() throws IOException {
        Path path = new Path("/file");
        try (FSDataOutputStream out = fs.create(path)) {
            out.write(1);
            assertEquals(0, fs.getFileStatus(path).getLen());
            out.hflush();
            assertEquals(1, fs.getFileStatus(path).getLen());
            out.write(new byte[SharedFileSystem.LEAST_BUFFER + 1]);
            assertEquals(1 + SharedFileSystem.LEAST_BUFFER, fs.getFileStatus(path).getLen());
            out.hflush();
            assertEquals(2 + SharedFileSystem.LEAST_BUFFER, fs.getFileStatus(path).getLen());
        }
    }

    @Test
    void aFileThatAnInterruptHasClosedIsNotTakenForComplete() throws IOException {
        FSDataOutputStream out = fs.create(new Path("/file"));
        out.write(1);
        Thread.currentThread().interrupt();
        assertThrows(IOException.class, out::flush);
        assertTrue(Thread.interrupted());
        assertThrows(IOException.class, out::close);
        out.close();
        assertThrows(IOException.class, () -> out.write(1));
    }

    @Test
    void withoutALayoutThereIsNoLocality() throws IOException {
        write(fs, "/file", "0123456789");
        BlockLocation[] blocks = fs.getFileBlockLocations(new Path("/file"), 2, 3);
        assertEquals(1, blocks.length);
        assertArrayEquals(new String[0], blocks[0].getHosts());
        assertEquals(10, blocks[0].getLength());
    }

    @Test
    void wrongSettingsSayWhatToDo() {
        for (String[] wrong : new String[][] {
            {SharedFileSystem.MOUNT, "", "absolute path"},
            {SharedFileSystem.MOUNT, "relative", "absolute path"},
            {SharedFileSystem.MOUNT, "/no/such/folder", "there is no folder"},
            {SharedFileSystem.MOUNT, "/proc/self/status", "is not a folder"},
            {SharedFileSystem.BLOCK_SIZE, "0", "more than 0"},
            {"penstock.sharedfs.layout", "glusterfs", "none, gluster, moosefs or lustre"},
            {"penstock.sharedfs.hosts", "/no/such/file", "/no/such/file"},
        }) {
            Configuration other = new Configuration(conf);
            other.set("penstock.sharedfs.layout", "moosefs");
            other.set(wrong[0], wrong[1]);
            IOException e = assertThrows(IOException.class,
                () -> FileSystem.newInstance(URI.create("shared:///"), other), Arrays.toString(wrong));
            assertTrue(e.getMessage().contains(wrong[2]), e.getMessage());
        }
        assertThrows(IOException.class, () -> FileSystem.newInstance(URI.create("shared://host/"), conf));
    }

    @Test
    void aFolderOfTheRootFileSystemIsRefused() throws IOException {
        Configuration other = new Configuration(conf);
        other.set(SharedFileSystem.MOUNT_REQUIRED, "true");
        other.set(SharedFileSystem.MOUNT, "/");
        IOException e =
            assertThrows(IOException.class, () -> FileSystem.newInstance(URI.create("shared:///"), other));
        assertTrue(e.getMessage().contains("nothing is mounted"), e.getMessage());
        other.set(SharedFileSystem.MOUNT, "/proc");
        FileSystem.newInstance(URI.create("shared:///"), other).close();
    }

    @Test
    void linksThatLeadNowhereDoNotHideTheOtherFiles() throws IOException {
        write(fs, "/in/part", "x");
        java.nio.file.Path folder = mount.resolve("in");
        Files.createSymbolicLink(folder.resolve("loop"), folder.resolve("loop"));
        Files.createSymbolicLink(folder.resolve("below-a-file"), folder.resolve("part/none"));
        Files.createSymbolicLink(folder.resolve("none"), folder.resolve("nothing"));
        FileStatus[] found = fs.listStatus(new Path("/in"));
        assertEquals(1, found.length);
        assertEquals("part", found[0].getPath().getName());
    }

    @Test
    void aLinkThatIsOverwrittenStaysALink() throws IOException {
        write(fs, "/real/file", "old");
        java.nio.file.Path link = mount.resolve("link");
        Files.createSymbolicLink(link, mount.resolve("real/file"));
        try (FSDataOutputStream out = fs.create(new Path("/link"), true)) {
            out.write("new".getBytes(StandardCharsets.UTF_8));
        }
        assertTrue(Files.isSymbolicLink(link));
        assertEquals("new", read("/real/file"));
    }
}
