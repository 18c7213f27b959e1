package penstock.sharedfs.shuffle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.function.UnaryOperator;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.io.compress.CompressionCodec;
import org.apache.hadoop.io.compress.DefaultCodec;
import org.apache.hadoop.mapred.RawKeyValueIterator;
import org.apache.hadoop.mapred.TaskAttemptID;
import org.apache.hadoop.mapred.TaskCompletionEvent;
import org.apache.hadoop.mapred.TaskCompletionEvent.Status;
import org.apache.hadoop.mapred.TaskStatus;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.security.TokenCache;
import org.apache.hadoop.security.Credentials;
import org.apache.hadoop.security.UserGroupInformation;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import penstock.core.TestDaemon;
import penstock.core.TestDaemon.Heard;
import penstock.sharedfs.FakeTools;
import penstock.sharedfs.TestMount;
import penstock.sharedfs.TurnsDaemon;
import penstock.sharedfs.layout.Setup;
import penstock.sharedfs.turns.Turns;

/** The plug-in over real map outputs, with Hadoop's merge, and Hadoop's own shuffle where it is left the work. */
class SharedShuffleTest {
    private static final int REDUCE = 1;
    private Cluster cluster;
    private final List<String> expected = new ArrayList<>();
    private final Random random = new Random(7);

    @AfterEach
    void close() {
        cluster.close();
    }

    /** Writes the outputs of all maps, with so many keys for each of three reduces, and their events. */
    private void maps(int maps, int keys, CompressionCodec codec) throws IOException {
        for (int map = 0; map < maps; map++) {
            succeed(Cluster.map(map, 0), keys, codec);
        }
        Collections.sort(expected);
    }

    private void succeed(TaskAttemptID attempt, int keys, CompressionCodec codec) throws IOException {
        List<List<String>> parts = keys(keys);
        cluster.write(attempt, codec, parts);
        parts.get(REDUCE).forEach(k -> expected.add(k + " " + attempt));
        cluster.event(attempt, Status.SUCCEEDED);
    }

    /** Makes all maps succeed with the same output. The first node has it; the others have links. */
    private void manyLikeTheFirst(List<List<String>> parts) throws IOException {
        TaskAttemptID first = Cluster.map(0, 0);
        cluster.write(first, null, parts);
        for (int map = 0; map < cluster.job.getNumMapTasks(); map++) {
            if (map > 0) {
                for (int volume = 0; volume < 2; volume++) {
                    Path folder = cluster.node(map).file(volume, Cluster.map(map, 0), "");
                    Files.createDirectories(folder.getParent());
                    Files.createSymbolicLink(folder, cluster.node(0).file(volume, first, ""));
                }
            }
            parts.get(REDUCE).forEach(k -> expected.add(k + " " + first));
            cluster.event(Cluster.map(map, 0), Status.SUCCEEDED);
        }
        Collections.sort(expected);
    }

    private List<List<String>> keys(int keys) {
        List<List<String>> parts = new ArrayList<>();
        for (int part = 0; part < 3; part++) {
            List<String> one = new ArrayList<>();
            for (int i = 0; i < keys; i++) {
                one.add("key" + random.nextInt(1000));
            }
            parts.add(one);
        }
        return parts;
    }

    private Cluster.Reduce reduce() throws IOException {
        return cluster.new Reduce(Cluster.reduce(REDUCE, 0));
    }

    private void assertInPlace(Cluster.Reduce reduce, int maps) throws Exception {
        assertEquals(expected, reduce.records());
        assertEquals(0, cluster.served());
        assertEquals(0, reduce.own(SharedShuffle.FALLBACKS));
        assertEquals(maps, reduce.own(SharedShuffle.OUTPUTS));
        assertEquals(maps, reduce.count("merged").getValue());
        assertEquals(0, cluster.open());
    }

    private void assertOrdinary(Cluster.Reduce reduce) throws Exception {
        assertEquals(expected, reduce.records());
        assertEquals(1, reduce.own(SharedShuffle.FALLBACKS));
        assertEquals(0, reduce.own(SharedShuffle.OUTPUTS));
        assertEquals(cluster.job.getNumMapTasks(), reduce.count("shuffled").getValue());
        assertTrue(cluster.served() >= cluster.job.getNumMapTasks(), "served " + cluster.served());
        assertEquals(0, cluster.open());
    }

    /** Each large read takes a turn at the server that the layout names. */
    @Test
    void readsTakeTurns() throws Exception {
        cluster = new Cluster(5, 3);
        try (TurnsDaemon turns = new TurnsDaemon(cluster.job)) {
            FakeTools tools = new FakeTools().tool("mfsfileinfo", """
                for file; do
                  printf '%s:\\n\\tchunk 0: 02_01 / (id:2 ver:1)\\n' "$file"
                  printf '\\t\\tcopy 1: 10.0.0.1:9422 (status:VALID)\\n'
                done
                """);
            tools.configure(cluster.job, "moosefs");
            TestMount.configure(cluster.job, cluster.shared);
            turns.daemon.generous = true;
            // The connection takes a moment, and the first reads would not wait for it.
            Turns.find(cluster.job, System.getenv(), Setup.locator(cluster.job, cluster.shared.toString()),
                cluster.shared);
            turns.awaitEnforcing();
            maps(5, 10_000, null);
            assertInPlace(reduce(), 5);
            assertEquals(1, tools.called().size(), "the layouts of all map outputs are asked for at once");
            int opens = 0;
            for (Heard heard : turns.daemon.heard()) {
                if (heard.type() == TestDaemon.OPEN) {
                    assertEquals("10.0.0.1", heard.peer().server);
                    assertFalse(heard.write());
                    opens++;
                }
            }
            assertTrue(opens >= 5, opens + " turns");
        }
    }

    @ParameterizedTest
    @CsvSource({"false,false", "true,false", "false,true", "true,true"})
    void merges(boolean compressed, boolean encrypted) throws Exception {
        cluster = new Cluster(7, 3);
        if (encrypted) {
            cluster.job.setBoolean(MRJobConfig.MR_ENCRYPTED_INTERMEDIATE_DATA, true);
            Credentials credentials = new Credentials();
            TokenCache.setEncryptedSpillKey("sixteen letters!".getBytes(), credentials);
            UserGroupInformation.getCurrentUser().addCredentials(credentials);
        }
        DefaultCodec codec = null;
        if (compressed) {
            codec = new DefaultCodec();
            codec.setConf(cluster.job);
        }
        maps(7, 5000, codec);
        Cluster.Reduce reduce = cluster.new Reduce(Cluster.reduce(REDUCE, 0), codec);
        assertInPlace(reduce, 7);
        assertEquals(7, reduce.count("shuffled").getValue());
        assertEquals(0, reduce.count("spilled").getValue());
        assertEquals(TaskStatus.Phase.SORT, reduce.status.getPhase());
        // All bytes of the map outputs were read once, and nothing else.
        long padding = encrypted ? 7 * 24 : 0;
        assertEquals(reduce.count("bytes").getValue() + padding, reduce.own(SharedShuffle.BYTES));
    }

    @Test
    void emptyOutputs() throws Exception {
        cluster = new Cluster(4, 3);
        maps(1, 10, null);
        for (int map = 1; map < 4; map++) {
            succeed(Cluster.map(map, 0), 0, null);
        }
        Cluster.Reduce reduce = reduce();
        assertInPlace(reduce, 1);
        assertEquals(4, reduce.count("shuffled").getValue());
    }

    @Test
    void onlyEmptyOutputs() throws Exception {
        cluster = new Cluster(3, 3);
        maps(3, 0, null);
        assertInPlace(reduce(), 0);
    }

    @Test
    void noMaps() throws Exception {
        cluster = new Cluster(0, 3);
        assertInPlace(reduce(), 0);
    }

    @Test
    void readsOnlyTheAttemptThatCounts() throws Exception {
        cluster = new Cluster(3, 3);
        cluster.write(Cluster.map(0, 0), null, keys(10)); // its node is lost
        cluster.event(Cluster.map(0, 0), Status.SUCCEEDED);
        cluster.write(Cluster.map(1, 0), null, keys(10)); // overtaken by attempt 1
        cluster.event(Cluster.map(2, 0), Status.FAILED);
        cluster.event(Cluster.map(0, 0), Status.OBSOLETE);
        succeed(Cluster.map(1, 1), 10, null);
        cluster.event(Cluster.map(1, 0), Status.KILLED);
        succeed(Cluster.map(0, 1), 10, null);
        succeed(Cluster.map(2, 1), 10, null);
        Collections.sort(expected);
        assertInPlace(reduce(), 3);
    }

    @Test
    void waitsForAnotherAttempt() throws Exception {
        cluster = new Cluster(2, 3);
        succeed(Cluster.map(0, 0), 10, null);
        cluster.event(Cluster.map(1, 0), Status.SUCCEEDED); // nothing is there
        cluster.master.whenAsked = n -> {
            if (n == 2) {
                cluster.event(Cluster.map(1, 0), Status.OBSOLETE);
            } else if (n == 60) { // later than the time for which an invisible output is looked for
                try {
                    succeed(Cluster.map(1, 1), 10, null);
                } catch (IOException e) {
                    throw new AssertionError(e);
                }
                Collections.sort(expected);
            }
        };
        assertInPlace(reduce(), 2);
    }

    @Test
    void mapsThatMayFail() throws Exception {
        cluster = new Cluster(3, 3);
        maps(2, 10, null);
        cluster.event(Cluster.map(2, 3), Status.TIPFAILED);
        assertInPlace(reduce(), 2);
    }

    @Test
    void fetchesManyEventsAndBeginsAgain() throws Exception {
        cluster = new Cluster(250, 30_000); // so 100 events at a time
        List<List<String>> parts = new ArrayList<>(Collections.nCopies(30_000, List.of()));
        parts.set(REDUCE, List.of("key"));
        manyLikeTheFirst(parts);
        cluster.master.failures = 3;
        cluster.master.whenAsked = n -> {
            if (n == 5) {
                cluster.master.resets = 1;
            }
        };
        assertInPlace(reduce(), 250);
    }

    @Test
    void theMasterIsGone() throws Exception {
        cluster = new Cluster(1, 3);
        maps(1, 10, null);
        cluster.master.failures = 10;
        Cluster.Reduce reduce = reduce();
        assertThrows(IOException.class, reduce::records);
    }

    @Test
    void becomesVisibleLater() throws Exception {
        cluster = new Cluster(3, 3);
        maps(3, 10, null);
        Path data = cluster.node(1).file(1, Cluster.map(1, 0), "file.out");
        byte[] all = Files.readAllBytes(data);
        Files.write(data, Arrays.copyOf(all, all.length / 3));
        cluster.master.whenAsked = n -> {
            if (n == 3) {
                Node.change(data, half -> all);
            }
        };
        assertInPlace(reduce(), 3);
    }

    @ParameterizedTest
    @ValueSource(strings = {"second attempt", "no setting", "relative", "no host", "no number", "not yarn",
        "other application", "other folder"})
    void cannotBeInPlace(String why) throws Exception {
        cluster = new Cluster(3, 3);
        TaskAttemptID attempt = Cluster.reduce(REDUCE, 0);
        switch (why) {
            case "second attempt" -> attempt = Cluster.reduce(REDUCE, 1001);
            case "no setting" -> cluster.job.unset(Places.DIRS);
            case "relative" -> cluster.job.set(Places.DIRS, "shared/{host}/disk0");
            case "no host" -> cluster.job.set(Places.DIRS, cluster.shared + "/disk0");
            case "no number" -> cluster.job.set(SharedShuffle.MEMORY, "much");
            case "not yarn" -> cluster.job.set("mapreduce.cluster.local.dir", cluster.shared.toString());
            case "other application" -> cluster.job.set("mapreduce.cluster.local.dir",
                cluster.shared + "/usercache/alice/appcache/application_200_0002");
            case "other folder" -> cluster.job.set(Places.DIRS, cluster.shared + "/nothing/{host}");
            default -> throw new AssertionError(why);
        }
        maps(3, 10, null);
        assertOrdinary(cluster.new Reduce(attempt));
    }

    /** What another node may do to the files that Hadoop's own shuffle would still deliver, from its own memory. */
    @ParameterizedTest
    @ValueSource(strings = {"no index", "short index", "long index", "changed index", "no data", "short data", "folder",
        "changed first record"})
    void damaged(String how) throws Exception {
        cluster = new Cluster(3, 3);
        maps(3, 10, null);
        TaskAttemptID attempt = Cluster.map(1, 0);
        Path index = cluster.node(1).file(0, attempt, "file.out.index");
        Path data = cluster.node(1).file(1, attempt, "file.out");
        Path aside = Files.move(how.contains("index") ? index : data, cluster.shared.resolve("aside"));
        Path damaged = how.contains("index") ? index : data;
        switch (how) {
            case "no index", "no data" -> { }
            case "short index" -> copy(aside, damaged, b -> Arrays.copyOf(b, b.length - 1));
            case "long index" -> copy(aside, damaged, b -> Arrays.copyOf(b, b.length + 24));
            case "changed index" -> copy(aside, damaged, b -> {
                b[24 * REDUCE + 7]++;
                return b;
            });
            case "short data" -> copy(aside, damaged, b -> Arrays.copyOf(b, b.length / 3));
            case "folder" -> Files.createDirectory(damaged);
            case "changed first record" -> copy(aside, damaged, b -> {
                int start = (b.length - 3 * 6) / 3; // parts have nearly the same length: hit records of all of them
                for (int i = start; i < 2 * start + 12; i++) {
                    b[i] = (byte) 0x87; // negative lengths
                }
                return b;
            });
            default -> throw new AssertionError(how);
        }
        // The server of the node finds the good file again when it is asked.
        cluster.node(1).before = () -> {
            if (Files.exists(aside)) {
                if (Files.isDirectory(damaged)) {
                    Files.delete(damaged);
                }
                Files.move(aside, damaged, java.nio.file.StandardCopyOption.REPLACE_EXISTING);
            }
        };
        assertOrdinary(reduce());
    }

    private static void copy(Path from, Path to, UnaryOperator<byte[]> how) throws IOException {
        Files.write(to, how.apply(Files.readAllBytes(from)));
    }

    @Test
    void damageThatIsFoundLateFailsTheAttempt() throws Exception {
        cluster = new Cluster(3, 3);
        maps(3, 5000, null);
        Path data = cluster.node(1).file(1, Cluster.map(1, 0), "file.out");
        Node.change(data, b -> {
            b[b.length / 2] ^= 1; // in the middle of this reduce's part
            return b;
        });
        Cluster.Reduce reduce = reduce();
        assertFails(reduce.plugin.run(), Cluster.map(1, 0));
        reduce.plugin.close();
        assertEquals(0, cluster.open());
        assertEquals(0, cluster.served());
    }

    @Test
    void aFileThatVanishesDuringTheMergeFailsTheAttempt() throws Exception {
        cluster = new Cluster(3, 3);
        cluster.job.set(SharedShuffle.MEMORY, "1k"); // so each reads 32 KiB at a time
        cluster.job.setInt(SharedShuffle.OPEN_FILES, 0);
        maps(3, 5000, null);
        Cluster.Reduce reduce = reduce();
        RawKeyValueIterator merged = reduce.plugin.run();
        Files.delete(cluster.node(2).file(0, Cluster.map(2, 0), "file.out"));
        assertFails(merged, Cluster.map(2, 0));
        reduce.plugin.close();
        assertEquals(0, cluster.open());
    }

    /** The merge fails before its end, and says which output could not be read. */
    private static void assertFails(RawKeyValueIterator merged, TaskAttemptID map) {
        IOException e = assertThrows(IOException.class, () -> {
            while (merged.next()) {
                merged.getKey();
            }
        });
        assertTrue(e.getMessage().contains(map.toString()), e.getMessage());
    }

    @Test
    void aFileOfAnotherUserIsNotRead() throws Exception {
        cluster = new Cluster(1, 3);
        maps(1, 10, null);
        Places places = new Places(cluster.job, Cluster.reduce(REDUCE, 0).getTaskID(), 123_456_789);
        IOException e = assertThrows(IOException.class, () -> places.find(new TaskCompletionEvent(0,
            Cluster.map(0, 0), 0, true, Status.SUCCEEDED, cluster.node(0).address())));
        assertTrue(e.getMessage().contains("user number"), e.getMessage());
    }

    /**
     * Many map outputs, more than may be open: one pass if memory suffices, several if not.
     *
     * @param memory the setting
     * @param spilled whether records are written again
     */
    @ParameterizedTest
    @CsvSource({"10m, false", "1m, true"})
    void manyOutputs(String memory, boolean spilled) throws Exception {
        cluster = new Cluster(250, 3);
        cluster.job.set(SharedShuffle.MEMORY, memory);
        cluster.job.setInt(SharedShuffle.OPEN_FILES, 20);
        maps(250, 1500, null); // about 65 KB for each reduce
        Cluster.Reduce reduce = reduce();
        long[] most = new long[1];
        reduce.whenRead = () -> most[0] = Math.max(most[0], cluster.open());
        assertInPlace(reduce, 250);
        assertEquals(spilled, reduce.count("spilled").getValue() > 0);
        // Results of earlier passes are files of the merge itself, at most as many as a pass has inputs.
        long passes = spilled ? 32 + 1 : 0;
        assertTrue(most[0] > 5 && most[0] <= 20 + 1 + passes, most[0] + " files were open");
        try (var files = Files.walk(cluster.nodes.get(0).local(0))) {
            assertFalse(files.anyMatch(f -> f.toString().contains("intermediate")), "a pass left its result");
        }
    }

    @Test
    void thousandsOfSmallOutputs() throws Exception {
        cluster = new Cluster(2000, 3);
        manyLikeTheFirst(keys(3));
        cluster.job.set(SharedShuffle.MEMORY, "80m");
        Cluster.Reduce reduce = reduce();
        assertInPlace(reduce, 2000);
        assertEquals(0, reduce.count("spilled").getValue());
    }
}
