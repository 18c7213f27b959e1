package penstock.agent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Random;
import org.apache.commons.io.FileUtils;
import org.apache.hadoop.fs.FileSystem;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Tests a real DataNode of a Hadoop in which the agent leaves a feature out: the agent reports this, and HDFS works as
 * without the agent.
 */
@Timeout(60)
class LeftOutIT {
    private Path directory;

    @BeforeEach
    void make() throws Exception {
        directory = Files.createTempDirectory("penstock");
    }

    @AfterEach
    void remove() throws Exception {
        FileUtils.deleteDirectory(directory.toFile());
    }

    @Test
    void aHadoopWithAnotherMethodRunsWithoutTheFeature() throws Exception {
        String sender = "org.apache.hadoop.hdfs.server.datanode.BlockSender";
        String front = Doctored.jar(directory.resolve("front.jar"), sender, "sendPacket");
        byte[] data = new byte[3 << 20];
        new Random(2).nextBytes(data);
        try (SmallHdfs hdfs = new SmallHdfs(directory, directory.resolve("s"), List.of(front))) {
            String log = hdfs.log();
            assertTrue(log.contains("penstock-agent: instrumented 13 methods;"), log);
            String left = "reads: this Hadoop lacks " + sender + ".sendPacket(";
            assertTrue(log.contains("penstock-agent: NOT GOVERNED: " + left), log);
            String bean = hdfs.bean();
            assertTrue(bean.contains("\"State\" : \"woven\""), bean);
            assertTrue(bean.contains("\"LeftOut\" : [ \"" + left), bean);
            FileSystem fs = hdfs.client("attempt_1700000000000_0042_m_000000_0");
            SmallHdfs.write(fs, "/whole", data);
            assertArrayEquals(data, SmallHdfs.read(fs, "/whole", data.length));
            hdfs.check();
        }
    }
}
