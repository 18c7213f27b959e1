package penstock.hdfs;

import net.bytebuddy.asm.Advice;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import penstock.core.Gates;

/** DataNode.runDatanodeDaemon: the volumes exist, and no client has connected yet. */
public final class NodeAdvice {
    private NodeAdvice() { }

    @Advice.OnMethodEnter(suppress = Throwable.class)
    static void enter(@Advice.This DataNode node) {
        // Hadoop's names and defaults; the classes with these constants differ by version.
        Gates.serve(Volumes.of(node), node.getConf().getInt("dfs.datanode.max.transfer.threads", 4096),
                node.getConf().getInt("dfs.client.socket-timeout", 60_000),
                node.getConf().getInt("dfs.datanode.ec.reconstruction.stripedread.timeout.millis", 5_000));
    }
}
