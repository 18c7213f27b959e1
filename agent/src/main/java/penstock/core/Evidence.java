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
 * What an operation of a DataNode shows of where it came from. Called by the inlined
 * advice; the check before weaving looks up the Hadoop methods in here too.
 */
public final class Evidence {
    private Evidence() { }

    /** The ends of the connection as DataXceiver keeps them, and the token's user. Never throws. */
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
     * Of a DataTransfer: the DataNode's own if the NameNode has ordered it. The client that requests a pipeline's
     * recovery is unknown, also if it gives no name, because the transfer runs in another thread than its request and
     * at another stage.
     */
    public static Peer ofTransfer(String client, BlockConstructionStage stage) {
        boolean ordered = stage == BlockConstructionStage.PIPELINE_SETUP_CREATE;
        return ordered && client != null && client.isEmpty() ? Peer.OWN : Peer.UNKNOWN;
    }

    /**
     * Empty if it cannot be read. Only for a DataNode that checks tokens: it will refuse a
     * forged one before any stream begins, and reads each one itself, in the same way.
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
     * Whether a block that no client writes is one that another DataNode makes from the
     * rest of its group. Such a writer leaves the caching strategy open, while a DataNode
     * that copies a replica, striped or not, always asks to drop what is behind.
     *
     * @param block the block's number; those of striped blocks are negative
     */
    public static boolean reconstructs(long block, CachingStrategy caching) {
        return block < 0 && caching != null && caching.getDropBehind() == null && caching.getReadahead() == null;
    }
}
