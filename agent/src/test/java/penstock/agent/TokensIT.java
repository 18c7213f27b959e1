package penstock.agent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Random;
import org.apache.commons.io.FileUtils;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.datatransfer.Sender;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier;
import org.apache.hadoop.hdfs.server.datanode.CachingStrategy;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.Token;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import penstock.core.Frames;
import penstock.core.TestDaemon;

/**
 * Tests a real DataNode that checks block tokens: the agent reports a token's owner, and nothing for a forged token.
 */
@Timeout(60)
class TokensIT {
    @Test
    void theTokensUserIsTold() throws Exception {
        Path directory = Files.createTempDirectory("penstock");
        byte[] data = new byte[100_000];
        new Random(1).nextBytes(data);
        try (TestDaemon daemon = new TestDaemon(directory.resolve("s"), Frames.ENFORCE)) {
            daemon.generous = true;
            try (SmallHdfs hdfs = new SmallHdfs(directory, daemon.socket, List.of(), true)) {
                DistributedFileSystem fs = hdfs.client("");
                SmallHdfs.write(fs, "/f", data);
                String user = UserGroupInformation.getCurrentUser().getShortUserName();
                assertEquals(user, daemon.next(Frames.OPEN).peer().user);
                assertArrayEquals(data, SmallHdfs.read(fs, "/f", data.length));
                assertEquals(user, daemon.next(Frames.OPEN).peer().user);
                daemon.next(Frames.CLOSE);

                LocatedBlock block = fs.getClient().getLocatedBlocks("/f", 0).get(0);
                BlockTokenIdentifier forged = new BlockTokenIdentifier();
                forged.readFields(new DataInputStream(new ByteArrayInputStream(
                        block.getBlockToken().getIdentifier())));
                byte[] identifier = new BlockTokenIdentifier("somebody", forged.getBlockPoolId(), forged.getBlockId(),
                        forged.getAccessModes(), forged.getStorageTypes(), forged.getStorageIds(), false).getBytes();
                try (Socket socket = new Socket("127.0.0.1", fs.getDataNodeStats()[0].getXferPort())) {
                    new Sender(new DataOutputStream(socket.getOutputStream())).readBlock(block.getBlock(),
                            new Token<>(identifier, block.getBlockToken().getPassword(),
                                    block.getBlockToken().getKind(), block.getBlockToken().getService()),
                            "DFSClient_NONMAPREDUCE_1_1", 0, data.length, true, CachingStrategy.newDefaultStrategy());
                    while (socket.getInputStream().read() >= 0) {
                        // Read the whole refusal.
                    }
                }
                assertArrayEquals(data, SmallHdfs.read(fs, "/f", data.length));
                assertTrue(daemon.heard().stream().noneMatch(h -> h.peer().user.equals("somebody")));
                assertTrue(hdfs.bean().contains("\"Suppressed\" : 0"));
            }
        } finally {
            FileUtils.deleteDirectory(directory.toFile());
        }
    }
}
