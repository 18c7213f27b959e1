package penstock.shuffle;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.WritableByteChannel;
import org.jboss.netty.channel.Channel;
import org.jboss.netty.channel.ChannelDownstreamHandler;
import org.jboss.netty.channel.ChannelEvent;
import org.jboss.netty.channel.ChannelHandlerContext;
import org.jboss.netty.channel.ChannelPipeline;
import org.jboss.netty.channel.DefaultFileRegion;
import org.jboss.netty.channel.DownstreamMessageEvent;
import org.jboss.netty.channel.FileRegion;
import org.jboss.netty.channel.MessageEvent;
import org.jboss.netty.handler.stream.ChunkedFile;
import org.jboss.netty.handler.stream.ChunkedInput;
import org.jboss.netty.handler.stream.ChunkedWriteHandler;
import penstock.core.Gates;

/**
 * Does the work of {@link Shuffle} for Hadoop before 3.4, which sends map outputs by netty 3. There, too, a ChunkedInput
 * may have nothing to send yet, and resumeTransfer requests the next part. Two things are simpler than with netty 4:
 * Hadoop itself releases an output's region when the output's future is done, and a part is sent when its last byte has
 * been transferred.
 *
 * <p>Hadoop's classes for an output have the same names as in later releases, where they extend classes of netty 4. So
 * the code here refers only to the classes of netty 3 that they extend.
 */
public final class OldShuffle {
    private OldShuffle() { }

    /** Adds the handler. Throws IllegalStateException for a pipeline without a ChunkedWriteHandler. */
    public static void govern(ChannelPipeline pipeline) {
        ChannelHandlerContext chunking = pipeline.getContext(ChunkedWriteHandler.class);
        if (chunking == null) {
            throw new IllegalStateException("a shuffle connection without a ChunkedWriteHandler");
        }
        pipeline.addAfter(chunking.getName(), MapOutput.HANDLER, new Handler((ChunkedWriteHandler) chunking.getHandler()));
    }

    private static final class Handler implements ChannelDownstreamHandler {
        private final ChunkedWriteHandler writer;

        Handler(ChunkedWriteHandler writer) {
            this.writer = writer;
        }

        @Override
        public void handleDownstream(ChannelHandlerContext ctx, ChannelEvent event) {
            Parts parts = event instanceof MessageEvent ? inParts((MessageEvent) event) : null;
            if (parts == null) {
                ctx.sendDownstream(event);
            } else {
                ctx.sendDownstream(new DownstreamMessageEvent(event.getChannel(), event.getFuture(), parts,
                        ((MessageEvent) event).getRemoteAddress()));
            }
        }

        /** Returns null if the message is to be sent unchanged. */
        private Parts inParts(MessageEvent event) {
            Object message = event.getMessage();
            String type = message.getClass().getName();
            boolean region = type.equals(NodeManagerPoints.REGION);
            if (!region && !type.equals(NodeManagerPoints.FILE)) {
                return null;
            }
            try {
                Parts parts = region ? RegionInParts.of((DefaultFileRegion) message, event.getChannel(), writer)
                        : FileInParts.of((ChunkedFile) message, event.getChannel(), writer);
                if (parts != null) {
                    // Netty closes the parts, unless other code completes the future before.
                    event.getFuture().addListener(done -> parts.end());
                    return parts;
                }
            } catch (Throwable t) {
                Gates.failed(t);
            }
            Gates.SHUFFLE_UNGOVERNED.increment();
            return null;
        }
    }

    private static MapOutput open(String path, long start, long length, Channel channel, ChunkedWriteHandler writer) {
        return MapOutput.open(path, start, length,
                MapOutput.peer(channel.getRemoteAddress(), channel.getLocalAddress()),
                action -> channel.getPipeline().execute(() -> {
                    action.run();
                    writer.resumeTransfer();
                }));
    }

    /** A map output that is sent in parts. */
    private abstract static class Parts implements ChunkedInput {
        final MapOutput output;
        private boolean ended;

        Parts(MapOutput output) {
            this.output = output;
        }

        /** Returns the number of bytes that were sent. */
        abstract long sent();

        /** Ends the streams, whether the output was sent or not. */
        final void end() {
            if (!ended) {
                ended = true;
                output.close(sent());
            }
        }

        final boolean hasEnded() {
            return ended;
        }

        @Override
        public final boolean hasNextChunk() throws Exception {
            return !isEndOfInput();
        }
    }

    /** A map output that the kernel sends from the page cache to the socket; one part is in transit at a time. */
    private static final class RegionInParts extends Parts {
        private final DefaultFileRegion region;
        private final FileChannel file;
        private final String identifier;
        /** Bytes of parts that were returned, and bytes that were sent. */
        private long given;
        private long sent;
        private boolean underWay;

        private RegionInParts(DefaultFileRegion region, FileChannel file, String identifier, MapOutput output) {
            super(output);
            this.region = region;
            this.file = file;
            this.identifier = identifier;
        }

        /** Returns null if the region is to be sent unchanged. */
        static RegionInParts of(DefaultFileRegion region, Channel channel, ChunkedWriteHandler writer)
                throws ReflectiveOperationException {
            Class<?> type = region.getClass();
            if (!(Boolean) MapOutput.field(type, region, "shuffleTransferToAllowed")) {
                return null; // it is configured to be copied through a buffer
            }
            String identifier = (String) MapOutput.field(type, region, "identifier");
            FileChannel file = (FileChannel) MapOutput.field(type, region, "fileChannel");
            MapOutput output = open(identifier, region.getPosition(), region.getCount(), channel, writer);
            return output == null ? null : new RegionInParts(region, file, identifier, output);
        }

        @Override
        public Object nextChunk() {
            int n = underWay || hasEnded() ? 0 : output.next(given);
            if (n == 0) {
                return null;
            }
            Part part = new Part(given, n);
            given += n;
            underWay = true;
            return part;
        }

        @Override
        public boolean isEndOfInput() {
            return hasEnded() || given == region.getCount();
        }

        @Override
        long sent() {
            return sent;
        }

        @Override
        public void close() {
            end(); // the region is released by Hadoop
        }

        private final class Part implements FileRegion {
            private final long offset;
            private final long count;

            Part(long offset, long count) {
                this.offset = offset;
                this.count = count;
            }

            @Override
            public long getPosition() {
                return region.getPosition() + offset;
            }

            @Override
            public long getCount() {
                return count;
            }

            @Override
            public long transferTo(WritableByteChannel target, long position) throws IOException {
                long at = getPosition() + position;
                long n = file.transferTo(at, count - position, target);
                if (n <= 0 && file.size() < at + count - position) {
                    // No bytes exist beyond the file's end, so the connection would wait for ever.
                    throw new IOException(identifier + " has " + file.size() + " bytes, " + (at + count - position)
                            + " were to be sent");
                }
                sent += Math.max(n, 0);
                if (position + n == count) {
                    underWay = false;
                    if (given < region.getCount()) {
                        output.resume();
                    }
                }
                return n;
            }

            @Override
            public void releaseExternalResources() { }
        }
    }

    /** A map output that is sent encrypted. It is read in chunks, and each passes the gate before it is read. */
    private static final class FileInParts extends Parts {
        private final ChunkedFile file;

        private FileInParts(ChunkedFile file, MapOutput output) {
            super(output);
            this.file = file;
        }

        /** Returns null if the output is not governed. */
        static FileInParts of(ChunkedFile file, Channel channel, ChunkedWriteHandler writer)
                throws ReflectiveOperationException {
            String path = (String) MapOutput.field(file.getClass(), file, "identifier");
            MapOutput output = open(path, file.getStartOffset(), file.getEndOffset() - file.getStartOffset(), channel,
                    writer);
            return output == null ? null : new FileInParts(file, output);
        }

        @Override
        public Object nextChunk() throws Exception {
            return hasEnded() || output.next(sent()) == 0 ? null : file.nextChunk();
        }

        @Override
        public boolean isEndOfInput() throws Exception {
            return hasEnded() || file.isEndOfInput();
        }

        @Override
        long sent() {
            return file.getCurrentOffset() - file.getStartOffset();
        }

        @Override
        public void close() throws Exception {
            end();
            file.close();
        }
    }
}
