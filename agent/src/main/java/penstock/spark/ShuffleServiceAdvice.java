package penstock.spark;

import io.netty.channel.socket.SocketChannel;
import net.bytebuddy.asm.Advice;
import org.apache.hadoop.conf.Configuration;
import penstock.core.LocalDirectories;

/** Advice for Spark's shuffle service in a NodeManager: at its start, and when an executor connects. */
public final class ShuffleServiceAdvice {
    private ShuffleServiceAdvice() { }

    /** YarnShuffleService.serviceInit, before it listens. */
    static final class Serve {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static void enter(@Advice.Argument(0) Configuration configuration) {
            LocalDirectories.serve(configuration);
        }
    }

    /** TransportContext.initializePipeline: the pipeline is complete and has seen no message. */
    static final class Pipeline {
        @Advice.OnMethodExit(suppress = Throwable.class)
        static void exit(@Advice.Argument(0) SocketChannel channel) {
            Sending.into(channel, ShuffleService.all());
        }
    }
}
