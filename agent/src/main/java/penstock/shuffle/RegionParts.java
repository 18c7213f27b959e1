package penstock.shuffle;

import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.FileRegion;
import io.netty.handler.stream.ChunkedInput;
import io.netty.handler.stream.ChunkedWriteHandler;
import io.netty.util.AbstractReferenceCounted;
import java.io.FileDescriptor;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.WritableByteChannel;
import org.apache.hadoop.mapred.FadvisedFileRegion;

/**
 * A map output that the kernel sends from the page cache to the socket, in parts. One part is in transit at a time, and
 * between two parts the event loop serves its other connections. Each part retains the whole region. The region is
 * released with the last part, after which no further part is requested. As without the agent, the region is released
 * once, before the promise of its write completes.
 */
public final class RegionParts implements ChunkedInput<FileRegion> {
    private final FadvisedFileRegion region;
    private final MapOutput output;
    private final FileChannel file;
    private final FileDescriptor descriptor;
    private final String identifier;
    /** Bytes of parts that were returned, and bytes of parts that are done. */
    private long given;
    private long sent;
    private boolean underWay;
    private boolean closed;

    private RegionParts(FadvisedFileRegion region, Channel channel, ChunkedWriteHandler writer)
            throws ReflectiveOperationException {
        this.region = region;
        file = (FileChannel) field(region, "fileChannel");
        descriptor = (FileDescriptor) field(region, "fd");
        identifier = (String) field(region, "identifier");
        output = Shuffle.open(identifier, region.position(), region.count(), channel, writer);
    }

    private static Object field(FadvisedFileRegion region, String name) throws ReflectiveOperationException {
        return MapOutput.field(FadvisedFileRegion.class, region, name);
    }

    /**
     * Returns null if the region is to be sent unchanged, because it is not governed, or is configured to be copied
     * through a buffer.
     */
    static RegionParts of(FadvisedFileRegion region, Channel channel, ChunkedWriteHandler writer)
            throws ReflectiveOperationException {
        if (!(Boolean) field(region, "shuffleTransferToAllowed")) {
            return null;
        }
        RegionParts parts = new RegionParts(region, channel, writer);
        return parts.output == null ? null : parts;
    }

    @Override
    public FileRegion readChunk(ByteBufAllocator allocator) {
        int n = underWay || closed ? 0 : output.next(given);
        if (n == 0) {
            return null;
        }
        FileRegion part = new Part(given, n);
        given += n;
        underWay = true;
        return part;
    }

    private void done(long transferred) {
        sent += transferred;
        if (given < region.count()) {
            output.later(() -> underWay = false);
        }
    }

    @Override
    @Deprecated
    public FileRegion readChunk(ChannelHandlerContext ctx) {
        return readChunk(ctx.alloc());
    }

    @Override
    public boolean isEndOfInput() {
        return closed || given == region.count();
    }

    @Override
    public long length() {
        return region.count();
    }

    @Override
    public long progress() {
        return sent;
    }

    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        output.close(sent);
        region.release();
    }

    private final class Part extends AbstractReferenceCounted implements FileRegion {
        private final long offset;
        private final long count;
        private long transferred;

        Part(long offset, long count) {
            this.offset = offset;
            this.count = count;
            region.retain();
        }

        @Override
        public long transferTo(WritableByteChannel target, long position) throws IOException {
            long left = count - position;
            if (left < 0 || position < 0) {
                throw new IllegalArgumentException("position " + position + " of a part of " + count + " bytes");
            }
            if (left == 0 || !descriptor.valid()) {
                return 0;
            }
            long at = position() + position;
            long n = file.transferTo(at, left, target);
            if (n > 0) {
                transferred += n;
            } else if (file.size() < at + left) {
                // No bytes exist beyond the file's end, so the connection would wait for ever.
                throw new IOException(identifier + " has " + file.size() + " bytes, " + (at + left)
                        + " were to be sent");
            }
            return n;
        }

        @Override
        protected void deallocate() {
            try {
                region.release();
            } finally {
                done(transferred);
            }
        }

        @Override
        public long position() {
            return region.position() + offset;
        }

        @Override
        @Deprecated
        public long transfered() {
            return transferred;
        }

        @Override
        public long transferred() {
            return transferred;
        }

        @Override
        public long count() {
            return count;
        }

        @Override
        public FileRegion retain() {
            super.retain();
            return this;
        }

        @Override
        public FileRegion retain(int increment) {
            super.retain(increment);
            return this;
        }

        @Override
        public FileRegion touch() {
            return this;
        }

        @Override
        public FileRegion touch(Object hint) {
            return this;
        }
    }
}
