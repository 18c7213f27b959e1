package penstock.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Tests the names of clients. A name is created with its client, so the test needs no NameNode. */
class NamedDistributedFileSystemTest {
    private static final URI NOWHERE = URI.create("hdfs://127.0.0.1:1");

    private static Configuration conf(String task) {
        Configuration conf = new Configuration(false);
        conf.setClass("fs.hdfs.impl", NamedDistributedFileSystem.class, FileSystem.class);
        if (task != null) {
            conf.set("mapreduce.task.attempt.id", task);
        }
        return conf;
    }

    private static String client(String flow, Configuration conf) throws Exception {
        try (NamedDistributedFileSystem fs = new NamedDistributedFileSystem(flow)) {
            fs.initialize(NOWHERE, conf);
            return fs.getClient().getClientName();
        }
    }

    @ParameterizedTest
    @CsvSource({
        "application_1700000000000_0042, DFSClient_attempt_1700000000000_0042_spark_-?[0-9]+_[0-9]+",
        "app-20261122123456-0007, DFSClient_app-20261122123456-0007_-?[0-9]+_[0-9]+",
    })
    void theClientIsCalledByItsApplication(String flow, String name) throws Exception {
        // No value, and the value that Spark writes for a job that it commits.
        for (String task : new String[] {null, "attempt_202611221234561234567890_0001_m_000003_0"}) {
            Configuration conf = conf(task);
            assertTrue(client(flow, conf).matches(name), client(flow, conf));
            assertEquals(task, conf.get("mapreduce.task.attempt.id"), "the caller's configuration was changed");
        }
    }

    @Test
    void withoutAnApplicationItIsHdfs() throws Exception {
        assertTrue(client(null, conf(null)).startsWith("DFSClient_NONMAPREDUCE_"));
        assertTrue(client(null, conf("attempt_1700000000000_0001_m_000000_0"))
                .startsWith("DFSClient_attempt_1700000000000_0001_m_000000_0_"));
    }

    /** Spark's property contains a placeholder, so a process without the system property uses Hadoop's own class. */
    @Test
    void aSystemPropertyTurnsItOn() throws Exception {
        Configuration conf = new Configuration(false);
        conf.set("fs.hdfs.impl", "${penstock.hdfs.impl}");
        conf.set("penstock.hdfs.impl", DistributedFileSystem.class.getName());
        try (FileSystem fs = FileSystem.newInstance(NOWHERE, conf)) {
            assertSame(DistributedFileSystem.class, fs.getClass());
        }
        System.setProperty("penstock.hdfs.impl", NamedDistributedFileSystem.class.getName());
        try (FileSystem fs = FileSystem.newInstance(NOWHERE, conf)) {
            assertSame(NamedDistributedFileSystem.class, fs.getClass());
        } finally {
            System.clearProperty("penstock.hdfs.impl");
        }
    }

    /** The cache depends neither on configurations nor on names: the first caller creates the client for all. */
    @Test
    void hadoopCachesItAsItsOwn() throws Exception {
        FileSystem first = FileSystem.get(NOWHERE, conf("attempt_202611221234561234567890_0001_m_000003_0"));
        assertSame(first, FileSystem.get(NOWHERE, conf(null)));
        first.close();
        FileSystem second = FileSystem.get(NOWHERE, conf(null));
        assertNotSame(first, second);
        second.close();
    }
}
