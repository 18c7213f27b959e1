package penstock.sharedfs;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import penstock.sharedfs.turns.FileTurns;
import penstock.sharedfs.turns.Turns;

/**
 * A file of the mount that is open for writing, with its buffer. {@link #hflush} must make the bytes visible to readers
 * on other machines. Clients of parallel file systems may keep written bytes in their own memory, so it does what
 * {@link #hsync} does.
 */
final class SharedOutput extends OutputStream implements Syncable, StreamCapabilities {
    private static final Logger LOG = LoggerFactory.getLogger(SharedOutput.class);

    private final FileChannel channel;
    private final Path local;
    private final ByteBuffer buffer;
    /** Null without turns. */
    private final FileTurns turns;
    private long position;
    private boolean closed;
    /** The first error of a sync, after which the file may lack written bytes. Null if every sync succeeded. */
    private IOException lost;

    /** @param from the position of the first byte */
    SharedOutput(FileChannel channel, Path local, int bufferSize, long from, FileTurns turns) {
        this.channel = channel;
        this.local = local;
        this.position = from;
        this.turns = turns;
        this.buffer = ByteBuffer.allocate(bufferSize);
    }

    @Override
    public void write(int b) throws IOException {
        checkOpen();
        if (!buffer.hasRemaining()) {
            flush();
        }
        buffer.put((byte) b);
    }

    @Override
    public void write(byte[] b, int off, int len) throws IOException {
        checkOpen();
        if (len > buffer.remaining()) {
            flush();
        }
        // The rest goes into the buffer, so that no small write follows each large one.
        int rest = len % buffer.capacity();
        write(ByteBuffer.wrap(b, off, len - rest));
        buffer.put(b, off + len - rest, rest);
    }

    private void checkOpen() throws IOException {
        if (closed) {
            throw new IOException(FSExceptionMessages.STREAM_IS_CLOSED);
        }
    }

    private void write(ByteBuffer bytes) throws IOException {
        if (lost != null) {
            throw new IOException("earlier bytes may not have reached the disk: " + lost, lost);
        }
        try {
            while (bytes.hasRemaining()) {
                writeSome(bytes);
            }
        } catch (ClosedByInterruptException e) {
            throw (IOException) new InterruptedIOException("interrupted while writing").initCause(e);
        } catch (ClosedChannelException e) {
            throw new IOException(FSExceptionMessages.STREAM_IS_CLOSED, e);
        }
    }

    @SuppressWarnings("try") // a turn is only closed
    private void writeSome(ByteBuffer bytes) throws IOException {
        if (turns == null) {
            position += channel.write(bytes);
            return;
        }
        int limit = bytes.limit();
        bytes.limit(Math.min(limit, bytes.position() + turns.most()));
        try (Turns.Turn turn = turns.take(position, bytes.remaining())) {
            position += channel.write(bytes);
            if (turn.isGiven() && turns.sync()) {
                force();
            }
        } finally {
            bytes.limit(limit);
        }
    }

    private void force() throws IOException {
        try {
            channel.force(false);
        } catch (IOException e) {
            lost = lost == null ? e : lost;
            throw e;
        }
    }

    @Override
    public void flush() throws IOException {
        // If a write fails, its bytes stay in the buffer, so close tries again and reports the error.
        buffer.flip();
        try {
            write(buffer);
        } finally {
            buffer.compact();
        }
    }

    @Override
    public void hflush() throws IOException {
        hsync();
    }

    @Override
    public void hsync() throws IOException {
        flush();
        force();
    }

    @Override
    @SuppressWarnings("deprecation") // callers still ask for HFLUSH
    public boolean hasCapability(String capability) {
        return capability.equalsIgnoreCase(HFLUSH) || capability.equalsIgnoreCase(HSYNC);
    }

    /** Writes what is in the buffer, and reports an error if it cannot, also when an interrupt has closed the file. */
    @Override
    public void close() throws IOException {
        if (closed) {
            return;
        }
        closed = true;
        try {
            flush();
        } finally {
            channel.close();
        }
        stamp();
    }

    /**
     * Sets the modification time, as HDFS does when a file is closed. Otherwise this machine's client may show a time of
     * its own until the servers' time has arrived. YARN does not start a container if a file of the job has another
     * modification time than when the job was submitted.
     */
    private void stamp() {
        try {
            Files.setLastModifiedTime(local, FileTime.fromMillis(System.currentTimeMillis()));
        } catch (IOException e) {
            // The file may have been deleted, or this user may not read it.
            LOG.debug("{} keeps the modification time of its last write: {}", local, e.toString());
        }
    }
}
