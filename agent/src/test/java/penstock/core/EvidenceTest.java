package penstock.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.EnumSet;
import java.util.Random;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.protocol.datatransfer.BlockConstructionStage;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier;
import org.apache.hadoop.hdfs.server.datanode.CachingStrategy;
import org.apache.hadoop.security.token.Token;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class EvidenceTest {
    private static byte[] identifier(String user, boolean protobuf) {
        return new BlockTokenIdentifier(user, "BP-1", 7, EnumSet.of(BlockTokenIdentifier.AccessMode.READ),
                new StorageType[] {StorageType.DISK}, new String[] {"DS-1"}, protobuf).getBytes();
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void theTokenNamesItsUser(boolean protobuf) {
        assertEquals("alice", Evidence.user(identifier("alice", protobuf)));
        String longest = "u".repeat(Frames.MAX_USER);
        assertEquals(longest, Peer.of("", "", Evidence.user(identifier(longest, protobuf))).user);
        assertEquals("", Peer.of("", "", longest + "u").user);
        assertEquals("", Peer.of("", "", "u\0v").user);
    }

    /** An operation continues with any contents of a token. */
    @Test
    void rubbishIsNoReasonToThrow() {
        long seed = System.nanoTime();
        Random random = new Random(seed);
        for (int i = 0; i < 60; i++) { // a random length may ask for all the memory
            byte[] bytes = random.nextBoolean() ? identifier("alice", random.nextBoolean())
                    : new byte[random.nextInt(99)];
            for (int n = 1 + random.nextInt(8); n > 0 && bytes.length > 0; n--) {
                bytes[random.nextInt(bytes.length)] = (byte) random.nextInt();
            }
            assertNotNull(Peer.of("", "", Evidence.user(bytes)), "seed " + seed);
        }
    }

    @Test
    void nothingIsKnownOfNobody() {
        assertSame(Peer.UNKNOWN, Peer.of(null, null, null));
        assertSame(Peer.UNKNOWN, Evidence.of(null, null, new Token<>(), null, null));
    }

    /**
     * Only transfers that the NameNode orders are the DataNode's own; a client without a name may request a recovery.
     */
    @Test
    void onlyAnOrderedTransferIsTheDataNodesOwn() {
        assertSame(Peer.OWN, Evidence.ofTransfer("", BlockConstructionStage.PIPELINE_SETUP_CREATE));
        assertSame(Peer.UNKNOWN, Evidence.ofTransfer("", BlockConstructionStage.TRANSFER_RBW));
        assertSame(Peer.UNKNOWN, Evidence.ofTransfer("", BlockConstructionStage.TRANSFER_FINALIZED));
        assertSame(Peer.UNKNOWN, Evidence.ofTransfer("", null));
        assertSame(Peer.UNKNOWN, Evidence.ofTransfer(null, BlockConstructionStage.PIPELINE_SETUP_CREATE));
        assertSame(Peer.UNKNOWN, Evidence.ofTransfer("DFSClient_NONMAPREDUCE_1_1",
                BlockConstructionStage.PIPELINE_SETUP_CREATE));
    }

    /** An operation that arrives by a connection, including a domain socket, is not the DataNode's own. */
    @ParameterizedTest
    @ValueSource(strings = {"own", "/own", "unix:{/var/run/dn.sock}", "<local>"})
    void noConnectionIsTheDataNodesOwn(String printed) {
        assertSame(Peer.UNKNOWN, Peer.of(printed, "<local>", ""));
        assertEquals("own", Peer.OWN.client);
    }

    @ParameterizedTest
    @CsvSource({
        "/127.0.0.1:50010, 127.0.0.1:50010",
        "node1/10.1.2.3:9866, 10.1.2.3:9866",
        "10.1.2.3:9866, 10.1.2.3:9866",
        "/[0:0:0:0:0:0:0:1]:40000, [0:0:0:0:0:0:0:1]:40000",
        "/0:0:0:0:0:0:0:1:40000, [0:0:0:0:0:0:0:1]:40000",
        "/[fe80:0:0:0:1:2:3:4%eth0]:40000, [fe80:0:0:0:1:2:3:4]:40000",
        "/fe80:0:0:0:1:2:3:4%2:40000, [fe80:0:0:0:1:2:3:4]:40000",
        "node1/<unresolved>:9866, ''",
        "unix:{/var/run/dn.sock}, ''",
        "'', ''", "/, ''", ":, ''", "/:1, ''", "/10.0.0.1:, ''", "/10.0.0.1:123456, ''",
    })
    void addresses(String printed, String address) {
        assertEquals(address, Peer.of(printed, "", "").client);
        assertEquals(address, Peer.of("", printed, "").server);
    }

    @Test
    void aWriterThatLeavesCachingOpenReconstructs() {
        CachingStrategy open = CachingStrategy.newDefaultStrategy();
        assertTrue(Evidence.reconstructs(-9223372036854775792L, open));
        assertFalse(Evidence.reconstructs(1073741825L, open));
        assertFalse(Evidence.reconstructs(-9223372036854775792L, new CachingStrategy(true, 4L << 20)));
        assertFalse(Evidence.reconstructs(-9223372036854775792L, null));
    }
}
