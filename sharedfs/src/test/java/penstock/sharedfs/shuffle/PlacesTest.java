package penstock.sharedfs.shuffle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.mapred.TaskCompletionEvent;
import org.apache.hadoop.mapred.TaskCompletionEvent.Status;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Where map outputs are looked for, with wrong answers of the application master and damaged indexes. */
class PlacesTest {
    private Cluster cluster;

    @BeforeEach
    void open() throws IOException {
        cluster = new Cluster(1, 3);
        cluster.write(Cluster.map(0, 0), null, List.of(List.of("a"), List.of("b", "c"), List.of()));
    }

    @AfterEach
    void close() {
        cluster.close();
    }

    private MapOutput find(int reduce, String address) throws IOException {
        return new Places(cluster.job, Cluster.reduce(reduce, 0).getTaskID())
            .find(new TaskCompletionEvent(0, Cluster.map(0, 0), 0, true, Status.SUCCEEDED, address));
    }

    @Test
    void patterns() throws IOException {
        String address = cluster.node(0).address();
        assertEquals(cluster.node(0).file(0, Cluster.map(0, 0), "file.out"), Path.of(find(0, address).file.toString()));
        // Two NodeManagers on one host, and short names.
        String port = address.replaceAll(".*:", "");
        Files.move(cluster.shared.resolve("127.0.0.1"), cluster.shared.resolve("127-" + port));
        cluster.job.setStrings(Places.DIRS, cluster.shared + "/{short}-{port}/disk0",
            cluster.shared + "/{short}-{port}/disk1");
        assertTrue(find(1, address).raw > 2);
        assertEquals(null, find(2, address).file);
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "http://", "http://../x:80", "http://..:80", "http://.:80", "http://a%2fb:80", "a/b",
        "http://[::1]:80", "http://a_b/../c:80", "http://-a:80", "\0", "http://a\0b:80", "file:///etc", "http:a:80"})
    void addressesThatAreNoHosts(String address) {
        assertThrows(NotInPlaceException.class, () -> find(0, address));
    }

    @Test
    void randomAddressesStayBelowThePattern() throws IOException {
        long seed = System.nanoTime();
        Random random = new Random(seed);
        String letters = "/.:%[]@\\-_a0{}h\u0000 ?#\u00fc";
        // A file at each place that a path with ".." could lead to would belong to this user and be read.
        for (int round = 0; round < 20_000; round++) {
            StringBuilder address = new StringBuilder(random.nextBoolean() ? "http://" : "");
            for (int i = random.nextInt(12); i > 0; i--) {
                address.append(letters.charAt(random.nextInt(letters.length())));
            }
            try {
                find(0, address.toString());
                throw new AssertionError("found by " + address + ", seed " + seed);
            } catch (IOException e) {
                String looked = e.getMessage();
                if (!(e instanceof NotInPlaceException)) {
                    String host = looked.replaceAll(".*? in " + cluster.shared + "/([^/]*)/disk0/.*", "$1");
                    assertTrue(host.matches("[A-Za-z0-9][A-Za-z0-9._-]*"), looked + ", seed " + seed);
                }
            }
        }
    }

    @Test
    void damagedIndexesAreNotBelieved() throws IOException {
        long seed = System.nanoTime();
        Random random = new Random(seed);
        String address = cluster.node(0).address();
        MapOutput good = find(1, address);
        Path index = cluster.node(0).file(1, Cluster.map(0, 0), "file.out.index");
        byte[] all = Files.readAllBytes(index);
        int refused = 0;
        for (int round = 0; round < 2000; round++) {
            byte[] damaged = random.nextInt(10) == 0 ? java.util.Arrays.copyOf(all, random.nextInt(200)) : all.clone();
            for (int i = random.nextInt(3); i >= 0 && damaged.length > 0; i--) {
                damaged[random.nextInt(damaged.length)] ^= (byte) random.nextInt(256);
            }
            Files.write(index, damaged);
            try {
                MapOutput found = find(1, address);
                assertEquals(List.of(good.offset, good.length, good.raw), List.of(found.offset, found.length, found.raw),
                    "seed " + seed);
            } catch (IOException e) {
                refused++;
            }
        }
        assertTrue(refused > 1000, refused + " refused, seed " + seed);
    }

    @Test
    void anIndexWithARightChecksumAndWrongNumbers() throws IOException {
        for (long[] numbers : new long[][] {{-1, 10, 10}, {0, 1, 10}, {0, 10, 3}, {0, 10, Long.MAX_VALUE},
                {Long.MAX_VALUE, 10, 10}, {0, Long.MIN_VALUE, 10}, {1 << 20, 10, 10}}) {
            org.apache.hadoop.mapred.SpillRecord record = new org.apache.hadoop.mapred.SpillRecord(3);
            record.putIndex(new org.apache.hadoop.mapred.IndexRecord(numbers[0], numbers[1], numbers[2]), 0);
            record.writeToFile(new org.apache.hadoop.fs.Path(
                cluster.node(0).file(1, Cluster.map(0, 0), "file.out.index").toString()), cluster.job);
            assertThrows(IOException.class, () -> find(0, cluster.node(0).address()));
        }
    }
}
