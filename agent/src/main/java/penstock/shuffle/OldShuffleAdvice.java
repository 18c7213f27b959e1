package penstock.shuffle;

import net.bytebuddy.asm.Advice;
import org.jboss.netty.channel.ChannelPipeline;

/** Advice for a ShuffleHandler with netty 3: HttpPipelineFactory.getPipeline makes a connection's pipeline. */
public final class OldShuffleAdvice {
    private OldShuffleAdvice() { }

    static final class Connect {
        @Advice.OnMethodExit(suppress = Throwable.class)
        static void exit(@Advice.Return ChannelPipeline pipeline) {
            OldShuffle.govern(pipeline);
        }
    }
}
