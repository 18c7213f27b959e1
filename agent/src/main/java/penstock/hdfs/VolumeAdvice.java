package penstock.hdfs;

import java.util.List;
import net.bytebuddy.asm.Advice;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import penstock.core.Gates;

/** Changes of a running DataNode's volumes. Both methods leave the remaining volumes in the configuration. */
public final class VolumeAdvice {
    private VolumeAdvice() { }

    /**
     * DataNode.refreshVolumes, for `dfsadmin -reconfig`. With an unchanged list it adds failed volumes again.
     */
    static final class Refresh {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static List<String> enter(@Advice.This DataNode node) {
            return Volumes.of(node);
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.This DataNode node, @Advice.Enter List<String> before) {
            Gates.volumes(before, Volumes.of(node), true);
        }
    }

    /** DataNode.handleVolumeFailures, which removes volumes with errors. */
    static final class Fail {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static List<String> enter(@Advice.This DataNode node) {
            return Volumes.of(node);
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.This DataNode node, @Advice.Enter List<String> before) {
            Gates.volumes(before, Volumes.of(node), false);
        }
    }
}
