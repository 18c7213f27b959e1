package penstock.hdfs;

import net.bytebuddy.asm.Advice;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.datatransfer.BlockConstructionStage;
import org.apache.hadoop.hdfs.security.token.block.BlockTokenIdentifier;
import org.apache.hadoop.hdfs.server.datanode.CachingStrategy;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.security.token.Token;
import penstock.core.Evidence;
import penstock.core.Gates;
import penstock.core.Op;

/**
 * Names an operation's flow on entry, and restores the thread's previous flow on exit. The bodies are inlined into
 * Hadoop's methods, so they use no lambdas, private helpers or other members that are not inlined.
 */
public final class NameAdvice {
    private NameAdvice() { }

    /**
     * DataXceiver.readBlock: the client's name is the third argument; it is empty if a DataNode reconstructs a block.
     */
    static final class Read {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static Op enter(@Advice.Argument(0) ExtendedBlock block,
                @Advice.Argument(1) Token<BlockTokenIdentifier> token, @Advice.Argument(2) String client,
                @Advice.FieldValue("datanode") DataNode node,
                @Advice.FieldValue("remoteAddress") String remote,
                @Advice.FieldValue("localAddress") String local) {
            return Gates.enterRead(client, Evidence.of(node, block, token, remote, local));
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.Enter Op op) {
            Gates.exit(op);
        }
    }

    /** DataXceiver.transferBlock, which a client requests when its pipeline is repaired. */
    static final class Transfer {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static Op enter(@Advice.Argument(0) ExtendedBlock block,
                @Advice.Argument(1) Token<BlockTokenIdentifier> token, @Advice.Argument(2) String client,
                @Advice.FieldValue("datanode") DataNode node,
                @Advice.FieldValue("remoteAddress") String remote,
                @Advice.FieldValue("localAddress") String local) {
            return Gates.enterClient(client, Evidence.of(node, block, token, remote, local));
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.Enter Op op) {
            Gates.exit(op);
        }
    }

    /**
     * DataXceiver.writeBlock: the client's name is the fourth argument; it is empty if a DataNode sends a replica or a
     * reconstructed block.
     */
    static final class Write {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static Op enter(@Advice.Argument(0) ExtendedBlock block,
                @Advice.Argument(2) Token<BlockTokenIdentifier> token, @Advice.Argument(3) String client,
                @Advice.Argument(13) CachingStrategy caching, @Advice.FieldValue("datanode") DataNode node,
                @Advice.FieldValue("remoteAddress") String remote,
                @Advice.FieldValue("localAddress") String local) {
            return Gates.enterPipeline(client, Evidence.reconstructs(block.getBlockId(), caching),
                    Evidence.of(node, block, token, remote, local));
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.Enter Op op) {
            Gates.exit(op);
        }
    }

    /** DataNode.DataTransfer.run: the name of the client that requested a pipeline's recovery, else empty. */
    static final class ClientField {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static Op enter(@Advice.FieldValue("clientname") String client,
                @Advice.FieldValue("stage") BlockConstructionStage stage) {
            return Gates.enterPipeline(client, false, Evidence.ofTransfer(client, stage));
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.Enter Op op) {
            Gates.exit(op);
        }
    }

    /** DataXceiver.copyBlock, one end of a balancer's or mover's move. */
    static final class Copy {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static Op enter(@Advice.Argument(0) ExtendedBlock block,
                @Advice.Argument(1) Token<BlockTokenIdentifier> token,
                @Advice.FieldValue("datanode") DataNode node,
                @Advice.FieldValue("remoteAddress") String remote,
                @Advice.FieldValue("localAddress") String local) {
            return Gates.enterBalancer(Evidence.of(node, block, token, remote, local));
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.Enter Op op) {
            Gates.exit(op);
        }
    }

    /** DataXceiver.replaceBlock, the other end of a move. The peer is the balancer, not the source of the data. */
    static final class Replace {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static Op enter(@Advice.Argument(0) ExtendedBlock block,
                @Advice.Argument(2) Token<BlockTokenIdentifier> token,
                @Advice.FieldValue("datanode") DataNode node,
                @Advice.FieldValue("remoteAddress") String remote,
                @Advice.FieldValue("localAddress") String local) {
            return Gates.enterBalancer(Evidence.of(node, block, token, remote, local));
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.Enter Op op) {
            Gates.exit(op);
        }
    }

    /**
     * VolumeScanner.scanBlock, and not VolumeScanner.run: so an operation ends with its block, although the scanner's
     * thread never ends.
     */
    static final class Scanner {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static Op enter() {
            return Gates.enterScanner();
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.Enter Op op) {
            Gates.exit(op);
        }
    }
}
