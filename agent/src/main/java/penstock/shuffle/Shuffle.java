package penstock.shuffle;

import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.ChannelPromise;
import io.netty.handler.stream.ChunkedInput;
import io.netty.handler.stream.ChunkedWriteHandler;
import org.apache.hadoop.mapred.FadvisedChunkedFile;
import org.apache.hadoop.mapred.FadvisedFileRegion;
import penstock.core.Gates;

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
    private Shuffle() { }

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
        pipeline.addAfter(chunking.name(), MapOutput.HANDLER, new Handler((ChunkedWriteHandler) chunking.handler()));
    }

    /** Returns null if the output is not governed. */
    static MapOutput open(String path, long start, long length, Channel channel, ChunkedWriteHandler writer) {
        return MapOutput.open(path, start, length, MapOutput.peer(channel.remoteAddress(), channel.localAddress()),
                action -> channel.eventLoop().execute(() -> {
                    action.run();
                    writer.resumeTransfer();
                }));
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
