package penstock.core;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.datatransfer.BlockConstructionStage;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier;
import org.apache.hadoop.hdfs.server.datanode.CachingStrategy;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.security.token.Token;

/**
 * Evidence about the origin of a DataNode's operation. The inlined advice calls this class; the check before weaving
 * also looks up the Hadoop methods used here.
 */
public final class Evidence {
    private Evidence() { }

    /** Returns the two ends of the connection, as DataXceiver stores them, and the token's user. Never throws. */
    public static Peer of(DataNode node, ExtendedBlock block, Token<BlockTokenIdentifier> token, String remote,
            String local) {
        try {
            byte[] identifier = token.getIdentifier();
            boolean checked = identifier.length > 0
                    && node.getBlockPoolTokenSecretManager().isBlockPoolRegistered(block.getBlockPoolId());
            return Peer.of(remote, local, checked ? user(identifier) : "");
        } catch (Throwable t) {
            Gates.failed(t);
            return Peer.UNKNOWN;
        }
    }

    /**
     * Returns the peer of a DataTransfer. If the NameNode has ordered the transfer, this is the DataNode itself. If a
     * client has requested it to recover a pipeline, the peer is unknown, because the transfer runs in another thread
     * than the request. The stage distinguishes the two cases, also for a client without a name.
     */
    public static Peer ofTransfer(String client, BlockConstructionStage stage) {
        boolean ordered = stage == BlockConstructionStage.PIPELINE_SETUP_CREATE;
        return ordered && client != null && client.isEmpty() ? Peer.OWN : Peer.UNKNOWN;
    }

    /**
     * Returns the token's user; empty if the token cannot be read. Call it only if the DataNode checks tokens: the
     * DataNode then reads each token in the same way, and refuses a forged token before any stream begins.
     */
    static String user(byte[] identifier) {
        try {
            BlockTokenIdentifier read = new BlockTokenIdentifier();
            read.readFields(new DataInputStream(new ByteArrayInputStream(identifier)));
            return read.getUserId();
        } catch (Throwable t) {
            return "";
        }
    }

    /**
     * Reports whether the writer of a block is a DataNode that reconstructs the block from the rest of its group. Call
     * it only for writers that are not clients. Such a writer sets no caching strategy. A DataNode that copies a
     * replica, striped or not, always asks to drop the pages behind its position.
     *
     * @param block the block's number, which is negative for striped blocks
     */
    public static boolean reconstructs(long block, CachingStrategy caching) {
        return block < 0 && caching != null && caching.getDropBehind() == null && caching.getReadahead() == null;
    }
}
