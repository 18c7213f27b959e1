package penstock.shuffle;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.stream.ChunkedInput;
import io.netty.handler.stream.ChunkedWriteHandler;
import org.apache.hadoop.mapred.FadvisedChunkedFile;

/**
 * A map output that is sent encrypted. It is read in chunks anyway (60 KiB, unless configured otherwise), and each
 * chunk passes the gate before it is read. Bytes that were read count as sent. At most one buffer of these bytes is
 * still unsent; the connection itself limits that buffer.
 */
public final class ChunkParts implements ChunkedInput<ByteBuf> {
    private final FadvisedChunkedFile file;
    private final MapOutput output;
    private boolean closed;

    private ChunkParts(FadvisedChunkedFile file, MapOutput output) {
        this.file = file;
        this.output = output;
    }

    /** Returns null if the output is not governed. */
    static ChunkParts of(FadvisedChunkedFile file, Channel channel, ChunkedWriteHandler writer)
            throws ReflectiveOperationException {
        String path = (String) MapOutput.field(FadvisedChunkedFile.class, file, "identifier");
        MapOutput output = Shuffle.open(path, file.startOffset(), file.length(), channel, writer);
        return output == null ? null : new ChunkParts(file, output);
    }

    @Override
    public ByteBuf readChunk(ByteBufAllocator allocator) throws Exception {
        return closed || output.next(file.progress()) == 0 ? null : file.readChunk(allocator);
    }

    @Override
    @Deprecated
    public ByteBuf readChunk(ChannelHandlerContext ctx) throws Exception {
        return readChunk(ctx.alloc());
    }

    @Override
    public boolean isEndOfInput() throws Exception {
        return closed || file.isEndOfInput();
    }

    @Override
    public long length() {
        return file.length();
    }

    @Override
    public long progress() {
        return file.progress();
    }

    @Override
    public void close() throws Exception {
        if (!closed) {
            closed = true;
            output.close(file.progress());
            file.close();
        }
    }
}
