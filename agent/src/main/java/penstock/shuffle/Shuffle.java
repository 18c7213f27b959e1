package penstock.shuffle;

import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.ChannelPromise;
import io.netty.handler.stream.ChunkedInput;
import io.netty.handler.stream.ChunkedWriteHandler;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapred.FadvisedChunkedFile;
import org.apache.hadoop.mapred.FadvisedFileRegion;
import penstock.core.Gates;
import penstock.core.Names;

/**
 * Installs a handler in a reducer's connection to the NodeManager. When a map output is written, the handler replaces
 * it by a message that is sent in parts.
 *
 * <p>An event loop serves many connections, so nothing may wait in it. Netty's own way for a message that is not ready
 * is a ChunkedInput: the ChunkedWriteHandler, which every shuffle connection has, requests the next part, and may get
 * none. In that case the ChunkedWriteHandler keeps later messages in order, and requests the part again after a call of
 * resumeTransfer. So netty remains responsible for order, flushing, back-pressure and the end of the connection. The
 * handler here only makes the parts and decides when they may be sent.
 *
 * <p>So an outbound message passes the ShuffleHandler first, then the handler of this class, then the
 * ChunkedWriteHandler and the HTTP encoder, which handles a part of a file like the whole file.
 */
public final class Shuffle {
    static final String NAME = "penstock";

    private static final String LOCAL_DIRS = "yarn.nodemanager.local-dirs";
    /** The rest of a path is chosen by the reducer, so the first match counts. */
    private static final Pattern APPLICATION =
            Pattern.compile("/usercache/[^/]+/appcache/(application_[0-9]{13}_[0-9]{4,10})/");

    private Shuffle() { }

    /** Called before a ShuffleHandler starts to serve files of these local directories. */
    public static void serve(Configuration configuration) {
        List<String> directories = new ArrayList<>();
        for (String directory : configuration.getTrimmedStrings(LOCAL_DIRS)) {
            directories.add(new Path(directory).toUri().getPath());
        }
        Gates.serve(directories);
    }

    /**
     * Adds the handler. Throws IllegalStateException for a pipeline without a ChunkedWriteHandler, which stays
     * unchanged.
     */
    public static void govern(Channel channel) {
        ChannelPipeline pipeline = channel.pipeline();
        ChannelHandlerContext chunking = pipeline.context(ChunkedWriteHandler.class);
        if (chunking == null) {
            throw new IllegalStateException("a shuffle connection without a ChunkedWriteHandler");
        }
        pipeline.addAfter(chunking.name(), NAME, new Handler((ChunkedWriteHandler) chunking.handler()));
    }

    /** Returns the flow of a map output, {@code <local dir>/usercache/USER/appcache/APPLICATION/output/...}. */
    static String flow(String path) {
        Matcher m = APPLICATION.matcher(path);
        return m.find() ? m.group(1) : Names.UNATTRIBUTED;
    }

    private static final class Handler extends ChannelOutboundHandlerAdapter {
        private final ChunkedWriteHandler writer;

        Handler(ChunkedWriteHandler writer) {
            this.writer = writer;
        }

        @Override
        public void write(ChannelHandlerContext ctx, Object message, ChannelPromise promise) {
            ctx.write(inParts(ctx.channel(), message, promise), promise);
        }

        private Object inParts(Channel channel, Object message, ChannelPromise promise) {
            if (!(message instanceof FadvisedFileRegion) && !(message instanceof FadvisedChunkedFile)) {
                return message;
            }
            try {
                ChunkedInput<?> parts = message instanceof FadvisedFileRegion
                        ? RegionParts.of((FadvisedFileRegion) message, channel, writer)
                        : ChunkParts.of((FadvisedChunkedFile) message, channel, writer);
                if (parts != null) {
                    if (!promise.isVoid()) {
                        // Netty closes the parts, unless other code completes the promise before.
                        promise.addListener(done -> parts.close());
                    }
                    return parts;
                }
            } catch (Throwable t) {
                Gates.failed(t);
            }
            Gates.SHUFFLE_UNGOVERNED.increment();
            return message;
        }
    }
}
