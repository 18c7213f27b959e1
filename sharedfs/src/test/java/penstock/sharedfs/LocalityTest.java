package penstock.sharedfs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.URI;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.management.ObjectName;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.lib.input.CombineTextInputFormat;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.input.TextInputFormat;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Where Hadoop places tasks, with scripts in the place of the tools. */
class LocalityTest {
    private static final long MIB = 1 << 20;
    /** Two chunks: the first on two servers. */
    private static final String MOOSE = """
        for file; do
          printf '%s:\\n\\tchunk 0: 02_01 / (id:2 ver:1)\\n' "$file"
          printf '\\t\\tcopy 1: 10.0.0.1:9422 (status:VALID)\\n\\t\\tcopy 2: 10.0.0.2:9422 (status:VALID)\\n'
          printf '\\tchunk 1: 03_01 / (id:3 ver:1)\\n\\t\\tcopy 1: 10.0.0.3:9422 (status:VALID)\\n'
        done
        """;

    private final java.nio.file.Path mount = TestMount.create();
    private final FakeTools tools = new FakeTools();
    private final Configuration conf = new Configuration();
    private FileSystem fs;

    private void start(String layout) throws IOException {
        TestMount.configure(conf, mount);
        tools.configure(conf, layout);
        conf.set("fs.defaultFS", "shared:///");
        conf.setBoolean("fs.shared.impl.disable.cache", true);
        fs = FileSystem.newInstance(URI.create("shared:///"), conf);
    }

    @AfterEach
    void stop() throws IOException {
        fs.close();
    }

    /** Makes a file with a hole of this length. */
    private void file(String name, long length) throws IOException {
        java.nio.file.Path file = mount.resolve(name);
        Files.createDirectories(file.getParent());
        try (RandomAccessFile f = new RandomAccessFile(file.toFile(), "rw")) {
            f.setLength(length);
        }
    }

    private static List<String> shown(BlockLocation[] blocks) {
        List<String> shown = new ArrayList<>();
        for (BlockLocation each : blocks) {
            try {
                shown.add(each.getOffset() / MIB + "+" + each.getLength() / MIB + Arrays.toString(each.getHosts()));
            } catch (IOException e) {
                throw new AssertionError(e);
            }
        }
        return shown;
    }

    private List<String> blocks(String path, long start, long length) throws IOException {
        return shown(fs.getFileBlockLocations(new Path(path), start, length));
    }

    @Test
    void chunksAreBlocksUnderTheNamesOfYarn() throws IOException {
        java.nio.file.Path names = TestMount.create().resolve("names");
        Files.writeString(names, "10.0.0.1 node1\n10.0.0.3 node3\n");
        conf.set("penstock.sharedfs.hosts", names.toString());
        tools.tool("mfsfileinfo", MOOSE);
        start("moosefs");
        file("in/a", 100 * MIB);
        assertEquals(64 * MIB, fs.getFileStatus(new Path("/in/a")).getBlockSize());
        assertEquals(List.of("0+64[node1, 10.0.0.2]", "64+36[node3]"), blocks("/in/a", 0, Long.MAX_VALUE));
        assertEquals(List.of("64+36[node3]"), blocks("/in/a", 65 * MIB, 1));
        assertEquals(List.of(), blocks("/in/a", 100 * MIB, 1));
        assertEquals(List.of("mfsfileinfo " + mount.resolve("in/a")), tools.called());
    }

    @Test
    void aBlockOfSeveralChunksHasTheHostsOfMost() throws IOException {
        tools.tool("mfsfileinfo", MOOSE);
        conf.set("penstock.sharedfs.block-size", "128m");
        start("moosefs");
        file("a", 128 * MIB);
        file("b", 127 * MIB);
        assertEquals(List.of("0+128[]"), blocks("/a", 0, 1));
        assertEquals(List.of("0+127[10.0.0.1, 10.0.0.2]"), blocks("/b", 0, 1));
    }

    @Test
    void splitsOfBothInterfacesAreAtTheirServers() throws Exception {
        tools.tool("mfsfileinfo", MOOSE);
        start("moosefs");
        for (int i = 0; i < 20; i++) {
            file("in/" + i, 128 * MIB);
        }
        Job job = Job.getInstance(conf);
        FileInputFormat.addInputPath(job, new Path("/in"));
        List<InputSplit> splits = new TextInputFormat().getSplits(job);
        assertEquals(40, splits.size());
        TreeSet<String> places = new TreeSet<>();
        for (InputSplit each : splits) {
            places.add(Arrays.toString(each.getLocations()));
        }
        assertEquals("[[10.0.0.1, 10.0.0.2], [10.0.0.3]]", places.toString());
        assertEquals(1, tools.called().size(), "20 files in one question");

        JobConf old = new JobConf(conf);
        org.apache.hadoop.mapred.FileInputFormat.addInputPath(old, new Path("/in"));
        org.apache.hadoop.mapred.TextInputFormat format = new org.apache.hadoop.mapred.TextInputFormat();
        format.configure(old);
        places.clear();
        for (org.apache.hadoop.mapred.InputSplit each : format.getSplits(old, 1)) {
            places.add(Arrays.toString(each.getLocations()));
        }
        assertEquals("[[10.0.0.1, 10.0.0.2], [10.0.0.3]]", places.toString());
    }

    @Test
    void splitsWithoutLocalityWorkEverywhere() throws Exception {
        tools.tool("mfsfileinfo", "exit 1");
        start("moosefs");
        file("in/a", 300 * MIB);
        file("in/b", 1);
        Job job = Job.getInstance(conf);
        FileInputFormat.addInputPath(job, new Path("/in"));
        for (InputSplit each : new TextInputFormat().getSplits(job)) {
            assertArrayEquals(new String[0], each.getLocations());
        }
        assertTrue(new CombineTextInputFormat().getSplits(job).size() >= 1);
        JobConf old = new JobConf(conf);
        org.apache.hadoop.mapred.FileInputFormat.addInputPath(old, new Path("/in"));
        org.apache.hadoop.mapred.TextInputFormat format = new org.apache.hadoop.mapred.TextInputFormat();
        format.configure(old);
        assertTrue(format.getSplits(old, 3).length > 3);
    }

    /** Spark lists a folder, and then asks for each file. */
    @Test
    void filesOfAListingAreAskedForTogether() throws IOException {
        tools.tool("mfsfileinfo", MOOSE);
        start("moosefs");
        for (int i = 0; i < 120; i++) {
            file("in/" + i, MIB);
        }
        for (FileStatus each : fs.listStatus(new Path("/in"))) {
            assertEquals(List.of("0+1[10.0.0.1, 10.0.0.2]"), shown(fs.getFileBlockLocations(each, 0, MIB)));
        }
        assertEquals(2, tools.called().size());
        RemoteIterator<LocatedFileStatus> located = fs.listLocatedStatus(new Path("/in"));
        while (located.hasNext()) {
            assertEquals(List.of("0+1[10.0.0.1, 10.0.0.2]"), shown(located.next().getBlockLocations()));
        }
        assertEquals(2, tools.called().size());
    }

    @Test
    void aShardedVolumeHasLocalityForItsFirstShardOnly() throws IOException {
        tools.tool("getfattr", """
            shift 6
            for file; do
              printf '# file: %s\\nglusterfs.pathinfo="(<DISTRIBUTE:v-dht> <POSIX(/b):node1:/b/f>)"\\n\\n' "$file"
            done
            """);
        conf.set("penstock.sharedfs.gluster.shard", "64m");
        start("gluster");
        file("a", 200 * MIB);
        assertEquals(List.of("0+64[node1]", "64+64[]", "128+64[]", "192+8[]"), blocks("/a", 0, 200 * MIB));
        assertEquals(List.of("getfattr --absolute-names -e text -n glusterfs.pathinfo -- " + mount.resolve("a")),
            tools.called());
    }

    private static String lustre(String server) {
        return """
            case "$1" in
            getname) echo "fs-ffff88003b1c2000 $2";;
            get_param) echo "osc.fs-OST0000-osc-ffff88003b1c2000.ost_conn_uuid=10.99.0.1@tcp"
                       echo "osc.fs-OST001f-osc-ffff88003b1c2000.ost_conn_uuid=%s@tcp";;
            setstripe) [ -e "$6" ] && exit 17; : > "$6";;
            getstripe) shift; for file; do
              printf '%%s\\nlmm_stripe_count:  1\\nlmm_stripe_size:   1048576\\nlmm_pattern:       raid0\\n' "$file"
              printf 'lmm_stripe_offset: 31\\n\\tobdidx\\t\\t objid\\n\\t    31\\t     2\\t   0x2\\t  0\\n\\n'
              done;;
            esac
            """.formatted(server);
    }

    @Test
    void lustreFilesAreCreatedOnTheWritersTarget() throws IOException {
        String here = InetAddress.getLocalHost().getHostName();
        tools.tool("lfs", lustre(here)).tool("lctl", lustre(here));
        conf.setBoolean("penstock.sharedfs.create.near", true);
        start("lustre");
        long near = count("CreatedNear");
        fs.create(new Path("/new/folder/a"), false).close();
        fs.create(new Path("/new/folder/a"), true).close();
        assertEquals(near + 2, count("CreatedNear"));
        List<String> made = new ArrayList<>(tools.called());
        made.removeIf(call -> !call.startsWith("lfs setstripe -c 1 -i 31 " + mount + "/new/folder/._penstock_"));
        assertEquals(2, made.size(), tools.called().toString());
        assertEquals(1, fs.listStatus(new Path("/new/folder")).length);
        assertEquals("rw-r--r--", fs.getFileStatus(new Path("/new/folder/a")).getPermission().toString());
        file("b", MIB);
        assertEquals(List.of("0+1[" + here + "]"), blocks("/b", 0, MIB));
        assertEquals(1, tools.called().stream().filter(call -> call.startsWith("lctl")).count());
    }

    @Test
    void withoutALocalTargetFilesAreCreatedAnywhere() throws IOException {
        tools.tool("lfs", lustre("10.99.0.2")).tool("lctl", lustre("10.99.0.2"));
        conf.setBoolean("penstock.sharedfs.create.near", true);
        start("lustre");
        long anywhere = count("CreatedAnywhere");
        fs.create(new Path("/a"), false).close();
        fs.create(new Path("/b"), false).close();
        assertEquals(anywhere + 2, count("CreatedAnywhere"));
        assertEquals(2, fs.listStatus(new Path("/")).length);
    }

    /** Another process deletes the temporary names. */
    @Test
    void aCreationThatFailsLeavesNoFile() throws Exception {
        tools.tool("mfssetsclass", "exit 1"); // so that the next files need no process
        conf.setBoolean("penstock.sharedfs.create.near", true);
        conf.set("penstock.sharedfs.moosefs.class", "near");
        start("moosefs");
        fs.create(new Path("/first"), false).close();
        AtomicBoolean ended = new AtomicBoolean();
        Thread deleting = new Thread(() -> {
            while (!ended.get()) {
                try (DirectoryStream<java.nio.file.Path> found = Files.newDirectoryStream(mount, "._penstock_*")) {
                    for (java.nio.file.Path each : found) {
                        Files.deleteIfExists(each);
                    }
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            }
        });
        deleting.start();
        try {
            for (int i = 0; i < 3000; i++) {
                java.nio.file.Path file = mount.resolve("file");
                try {
                    fs.create(new Path("/file"), false).close();
                } catch (IOException e) {
                    assertFalse(Files.exists(file), "file " + i + ": " + e);
                }
                Files.deleteIfExists(file);
            }
        } finally {
            ended.set(true);
            deleting.join();
        }
    }

    @Test
    void mooseFilesGetTheStorageClassOfTheMachine() throws IOException {
        tools.tool("mfssetsclass", "[ -f \"$2\" ]");
        conf.setBoolean("penstock.sharedfs.create.near", true);
        conf.set("penstock.sharedfs.moosefs.class", "near-%h");
        start("moosefs");
        fs.create(new Path("/a"), false).close();
        String here = InetAddress.getLocalHost().getHostName();
        assertTrue(tools.called().get(0).startsWith("mfssetsclass near-" + here + " " + mount + "/._penstock_"),
            tools.called().toString());
        assertEquals(1, fs.listStatus(new Path("/")).length);
    }

    private static long count(String attribute) {
        try {
            return (Long) ManagementFactory.getPlatformMBeanServer().getAttribute(
                new ObjectName("penstock:type=SharedFileSystem"), attribute);
        } catch (javax.management.JMException e) {
            throw new AssertionError(e);
        }
    }
}
