package penstock.shuffle;

import io.netty.channel.socket.SocketChannel;
import net.bytebuddy.asm.Advice;
import org.apache.hadoop.conf.Configuration;
import penstock.core.LocalDirectories;

/** Advice for the NodeManager's ShuffleHandler: at its start, and when a reducer connects. */
public final class ShuffleAdvice {
    private ShuffleAdvice() { }

    /** ShuffleHandler.serviceInit, before it listens. */
    static final class Serve {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static void enter(@Advice.Argument(0) Configuration configuration) {
            LocalDirectories.serve(configuration);
        }
    }

    /** ShuffleChannelInitializer.initChannel: the pipeline is complete and has seen no message. */
    static final class Connect {
        @Advice.OnMethodExit(suppress = Throwable.class)
        static void exit(@Advice.Argument(0) SocketChannel channel) {
            Shuffle.govern(channel);
        }
    }
}
