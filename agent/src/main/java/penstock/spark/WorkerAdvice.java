package penstock.spark;

import io.netty.channel.socket.SocketChannel;
import net.bytebuddy.asm.Advice;
import org.apache.spark.SparkConf;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.util.TransportConf;

/** Advice for Spark's shuffle service on a standalone cluster. */
public final class WorkerAdvice {
    private WorkerAdvice() { }

    /** ExternalShuffleService.start, before it listens. A Worker calls it only if the service is enabled. */
    static final class Serve {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static void enter(@Advice.FieldValue("sparkConf") SparkConf conf) {
            WorkersFiles.serve(conf);
        }
    }

    /** ExternalShuffleBlockResolver's methods that find the block of an application. */
    static final class Requested {
        @Advice.OnMethodExit(suppress = Throwable.class)
        static void exit(@Advice.Argument(0) String application, @Advice.FieldValue("conf") TransportConf conf,
                @Advice.Return(readOnly = false) ManagedBuffer block) {
            block = WorkersFiles.requested(block, application, conf);
        }
    }

    /** TransportContext.initializePipeline: the pipeline is complete and has seen no message. */
    static final class Pipeline {
        @Advice.OnMethodExit(suppress = Throwable.class)
        static void exit(@Advice.Argument(0) SocketChannel channel) {
            Sending.into(channel, WorkersFiles.all());
        }
    }
}
