package penstock.sharedfs;

import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.HasFileDescriptor;
import org.apache.hadoop.fs.StreamCapabilities;
import penstock.sharedfs.turns.FileTurns;
import penstock.sharedfs.turns.Turns;

/**
 * A file of the mount that is open for reading. Sequential reads do not use a channel, because an interrupt of the
 * reading thread would close it.
 */
final class SharedInput extends FSInputStream implements HasFileDescriptor, StreamCapabilities {
    private static final int FIRST_READ = 128 << 10;
    private final RandomAccessFile file;
    private final FileSystem.Statistics statistics;
    /** Null without turns. */
    private final FileTurns turns;
    private long position;
    /**
     * The maximum number of bytes of the next sequential read with turns. After a seek, the first read is small,
     * because its reader may seek again; each following read is twice as large.
     */
    private int most;

    SharedInput(RandomAccessFile file, FileSystem.Statistics statistics, FileTurns turns) {
        this.file = file;
        this.statistics = statistics;
        this.turns = turns;
        this.most = firstTurn();
    }

    private int firstTurn() {
        return turns == null ? FIRST_READ : Math.min(FIRST_READ, turns.most());
    }

    @Override
    public void seek(long target) throws IOException {
        if (target < 0) {
            throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK);
        }
        if (target != position) {
            file.seek(target);
            position = target;
            most = firstTurn();
        }
    }

    @Override
    public long getPos() {
        return position;
    }

    @Override
    public boolean seekToNewSource(long target) {
        return false;
    }

    @Override
    public int available() throws IOException {
        return (int) Math.max(0, Math.min(Integer.MAX_VALUE, file.length() - position));
    }

    @Override
    public int read() throws IOException {
        int value = file.read();
        if (value >= 0) {
            count(1);
        }
        return value;
    }

    @SuppressWarnings("try") // a turn is only closed
    @Override
    public int read(byte[] b, int off, int len) throws IOException {
        int n;
        if (turns == null || len < Turns.LEAST) {
            n = file.read(b, off, len);
        } else {
            int some = (int) Math.min(Math.min(len, most), Math.max(1, file.length() - position));
            try (Turns.Turn turn = turns.take(position, some)) {
                n = file.read(b, off, some);
            }
            most = Math.min(2 * most, turns.most());
        }
        count(n);
        return n;
    }

    private void count(int n) {
        if (n > 0) {
            position += n;
            statistics.incrementBytesRead(n);
        }
    }

    @Override
    public int read(long from, byte[] b, int off, int len) throws IOException {
        validatePositionedReadArgs(from, b, off, len);
        if (len == 0) {
            return 0;
        }
        return read(from, ByteBuffer.wrap(b, off, len));
    }

    @SuppressWarnings("try") // a turn is only closed
    private int read(long from, ByteBuffer into) throws IOException {
        int n;
        int limit = into.limit();
        if (turns != null) {
            into.limit(Math.min(limit, into.position() + turns.most()));
        }
        try (Turns.Turn turn = turns == null ? null : turns.take(from, into.remaining())) {
            n = file.getChannel().read(into, from);
        } catch (ClosedChannelException e) {
            throw new IOException(FSExceptionMessages.STREAM_IS_CLOSED, e);
        } finally {
            into.limit(limit);
        }
        if (n > 0) {
            statistics.incrementBytesRead(n);
        }
        return n;
    }

    /**
     * Reads the ranges, which may overlap, one after the other. The method that this overrides fills direct buffers
     * with wrong data in Hadoop 3.3.6, whose own contract test fails on it.
     */
    @Override
    public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate) throws IOException {
        for (FileRange range : ranges) {
            if (range.getLength() < 0) {
                throw new IllegalArgumentException("a range of " + range.getLength() + " bytes");
            }
            if (range.getOffset() < 0) {
                throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK);
            }
        }
        for (FileRange range : ranges) {
            CompletableFuture<ByteBuffer> result = new CompletableFuture<>();
            range.setData(result);
            try {
                ByteBuffer buffer = allocate.apply(range.getLength());
                buffer.limit(buffer.position() + range.getLength());
                ByteBuffer filled = buffer.slice();
                while (filled.hasRemaining()) {
                    if (read(range.getOffset() + filled.position(), filled) < 0) {
                        throw new EOFException("the file ends within " + range);
                    }
                }
                result.complete(buffer);
            } catch (IOException | RuntimeException e) {
                result.completeExceptionally(e);
            }
        }
    }

    @Override
    public boolean hasCapability(String capability) {
        return capability.equalsIgnoreCase(StreamCapabilities.VECTOREDIO);
    }

    @Override
    public FileDescriptor getFileDescriptor() throws IOException {
        return file.getFD();
    }

    @Override
    public void close() throws IOException {
        file.close();
    }
}
