package penstock.hdfs;

import net.bytebuddy.asm.Advice;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.datanode.LocalReplica;
import org.apache.hadoop.hdfs.server.datanode.Replica;
import penstock.core.Gates;
import penstock.core.Refusal;
import penstock.core.Stream;

/**
 * BlockSender, through which every block leaves a DataNode. The stream is stored in a field that weaving adds to the
 * object: unlike a thread-local, it cannot be left behind or mixed up. transferTo is unchanged, so zero-copy still
 * works.
 */
public final class ReadAdvice {
    private ReadAdvice() { }

    /**
     * The constructor. On entry no lock is held. The lookup of the replica takes the dataset's read lock for a moment,
     * as the constructor itself does later. Replicas in memory or on provided storage have no device here. The
     * constructor may throw an IOException in any case; a refused operation throws it before a file is opened. The
     * DataNode reads the checksums of the range only to verify or to send them. HBase, which has checksums of its own,
     * asks for none. If a block's length is no multiple of 512, the DataNode reads the block's last checksum all the
     * same and keeps it in memory. This read has no turn.
     */
    static final class Construct {
        @SuppressWarnings("deprecation") // FsDatasetSpi.getReplica, which BlockSender uses as well
        @Advice.OnMethodEnter
        static Stream enter(@Advice.Argument(0) ExtendedBlock block, @Advice.Argument(1) long start,
                @Advice.Argument(2) long length, @Advice.Argument(4) boolean verify,
                @Advice.Argument(5) boolean send, @Advice.Argument(6) DataNode node) throws Refusal {
            Stream opened = null;
            try {
                Replica replica = node.getFSDataset().getReplica(block.getBlockPoolId(), block.getBlockId());
                if (replica instanceof LocalReplica && !replica.isOnTransientStorage()) {
                    LocalReplica local = (LocalReplica) replica;
                    opened = Gates.openRead(local.getBlockFile(), verify || send ? local.getMetaFile() : null, start,
                            length, replica.getBytesOnDisk());
                }
            } catch (Throwable t) {
                Gates.failed(t);
            }
            if (Gates.isRefused(opened)) {
                throw Gates.refusal(opened); // the operation's exit closes the stream
            }
            return opened;
        }

        /** Not reached if the constructor throws: then the operation's exit closes the stream. */
        @Advice.OnMethodExit(suppress = Throwable.class)
        static void exit(@Advice.Enter Stream opened,
                @Advice.FieldValue(value = Stream.FIELD, readOnly = false) Stream stream) {
            stream = opened;
            Gates.constructed();
        }
    }

    /** sendPacket, entered once per packet and once for the empty packet at the end. */
    static final class Send {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static void enter(@Advice.FieldValue(Stream.FIELD) Stream stream, @Advice.FieldValue("offset") long offset,
                @Advice.FieldValue("endOffset") long end, @Advice.FieldValue("chunkSize") int chunk,
                @Advice.Argument(1) int chunks) {
            if (stream != null) {
                Gates.read(stream, offset, Math.min(end, offset + (long) chunk * chunks));
            }
        }
    }

    /** close, which its callers call twice; the second call throws inside and finds no stream. */
    static final class Close {
        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.Thrown Throwable thrown, @Advice.FieldValue("offset") long offset,
                @Advice.FieldValue(value = Stream.FIELD, readOnly = false) Stream stream) {
            if (stream != null) {
                Gates.close(stream, offset, thrown != null);
                stream = null;
            }
        }
    }
}
