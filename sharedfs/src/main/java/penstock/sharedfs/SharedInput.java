package penstock.sharedfs;

import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.HasFileDescriptor;

/**
 * A file of the mount that is open for reading. Sequential reads do not use a channel, which an interrupt of the reading
 * thread would close.
 */
final class SharedInput extends FSInputStream implements HasFileDescriptor {
    private final RandomAccessFile file;
    private final FileSystem.Statistics statistics;
    private long position;

    SharedInput(RandomAccessFile file, FileSystem.Statistics statistics) {
        this.file = file;
        this.statistics = statistics;
    }

    @Override
    public void seek(long target) throws IOException {
        if (target < 0) {
            throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK);
        }
        if (target != position) {
            file.seek(target);
            position = target;
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

    @Override
    public int read(byte[] b, int off, int len) throws IOException {
        int n = file.read(b, off, len);
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
        int n;
        try {
            n = file.getChannel().read(ByteBuffer.wrap(b, off, len), from);
        } catch (ClosedChannelException e) {
            throw new IOException(FSExceptionMessages.STREAM_IS_CLOSED, e);
        }
        if (n > 0) {
            statistics.incrementBytesRead(n);
        }
        return n;
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
