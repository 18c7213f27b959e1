package penstock.hdfs;

import net.bytebuddy.asm.Advice;
import org.apache.hadoop.hdfs.protocol.datatransfer.PacketReceiver;
import org.apache.hadoop.hdfs.server.datanode.LocalReplica;
import org.apache.hadoop.hdfs.server.datanode.ReplicaInPipeline;
import penstock.core.Gates;
import penstock.core.Stream;

/**
 * BlockReceiver, through which every block enters a DataNode, and the PacketReceiver that it owns. The constructor's
 * own work (recoverRbw, append) may hold the dataset's write lock, so a stream begins only when the constructor
 * returns.
 */
public final class WriteAdvice {
    private WriteAdvice() { }

    /** The constructor: the replica has its files, and its length if it is appended to or recovered. */
    static final class Construct {
        @Advice.OnMethodExit(suppress = Throwable.class)
        static void exit(@Advice.FieldValue("replicaInfo") ReplicaInPipeline replica,
                @Advice.FieldValue(value = Stream.FIELD, readOnly = false) Stream stream) {
            if (replica instanceof LocalReplica && !replica.isOnTransientStorage()) {
                LocalReplica local = (LocalReplica) replica;
                stream = Gates.openWrite(local.getBlockFile(), local.getMetaFile(), replica.getBytesOnDisk());
            }
        }
    }

    /** receivePacket: receives one packet, forwards it and writes it. */
    static final class Receive {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static void enter(@Advice.FieldValue(Stream.FIELD) Stream stream) {
            Gates.receiving(stream);
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.FieldValue(Stream.FIELD) Stream stream,
                @Advice.FieldValue("replicaInfo") ReplicaInPipeline replica) {
            Gates.received(stream, replica.getBytesOnDisk());
        }
    }

    /** PacketReceiver.receiveNextPacket, which HDFS clients also use: only the thread of a BlockReceiver waits. */
    static final class Packet {
        @Advice.OnMethodExit(suppress = Throwable.class)
        static void exit(@Advice.This PacketReceiver receiver) {
            Stream stream = Gates.writing();
            if (stream != null && receiver.getHeader().getDataLen() > 0) {
                Gates.packet(stream);
            }
        }
    }

    /** close, in the receiving thread or the responder's, before the block is finalised and renamed. */
    static final class Close {
        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.Thrown Throwable thrown,
                @Advice.FieldValue("replicaInfo") ReplicaInPipeline replica,
                @Advice.FieldValue(value = Stream.FIELD, readOnly = false) Stream stream) {
            if (stream != null) {
                Gates.close(stream, replica.getBytesOnDisk(), thrown != null);
                stream = null;
            }
        }
    }
}
