package penstock.hdfs;

import java.util.ArrayList;
import java.util.List;
import net.bytebuddy.asm.Advice;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.datanode.StorageLocation;
import penstock.core.Gates;

/** DataNode.runDatanodeDaemon: the volumes are there and the first client is not. */
public final class NodeAdvice {
    private NodeAdvice() { }

    @Advice.OnMethodEnter(suppress = Throwable.class)
    static void enter(@Advice.This DataNode node) {
        List<String> directories = new ArrayList<>();
        for (StorageLocation location : DataNode.getStorageLocations(node.getConf())) {
            if (location.getUri() != null && location.getUri().getPath() != null) {
                directories.add(location.getUri().getPath());
            }
        }
        // Names and defaults of Hadoop's own; the classes that have them as constants differ by version.
        Gates.serve(directories, node.getConf().getInt("dfs.datanode.max.transfer.threads", 4096),
                node.getConf().getInt("dfs.client.socket-timeout", 60_000),
                node.getConf().getInt("dfs.datanode.ec.reconstruction.stripedread.timeout.millis", 5_000));
    }
}
