package penstock.sharedfs.shuffle;

import java.io.EOFException;
import java.io.IOException;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSError;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapred.Reporter;
import penstock.sharedfs.turns.FileTurns;
import penstock.sharedfs.turns.Turns;

/**
 * A part of a file, read in large pieces. The input holds no memory before the first read. Between two reads, it holds a
 * descriptor only if {@link OpenFiles} permits.
 */
final class SegmentInput extends FSInputStream {
    private final OpenFiles files;
    private final Path file;
    private final long end;
    private final int bufferSize;
    private final Reporter reporter;
    /** Null without turns. */
    private final FileTurns turns;

    private byte[] buffer;
    /** The places of the next byte and of the end of the bytes in the buffer. */
    private int next;
    private int filled;
    /** The place in the file of the next byte for the buffer. */
    private long position;
    private FSDataInputStream kept;

    SegmentInput(OpenFiles files, MapOutput output, int bufferSize, Reporter reporter, FileTurns turns) {
        this.turns = turns;
        this.files = files;
        this.file = output.file;
        this.position = output.offset;
        this.end = output.offset + output.length;
        this.bufferSize = bufferSize;
        this.reporter = reporter;
    }

    @Override
    public int read() throws IOException {
        return next < filled || fill() ? buffer[next++] & 0xff : -1;
    }

    @Override
    public int read(byte[] b, int off, int len) throws IOException {
        if (len == 0) {
            return 0;
        }
        if (next == filled && !fill()) {
            return -1;
        }
        int n = Math.min(len, filled - next);
        System.arraycopy(buffer, next, b, off, n);
        next += n;
        return n;
    }

    /** Reads the next piece, and reports whether there was one. */
    private boolean fill() throws IOException {
        int n = (int) Math.min(bufferSize, end - position);
        if (n <= 0) {
            close();
            return false;
        }
        if (buffer == null) {
            buffer = new byte[n];
        }
        next = 0;
        filled = 0;
        FSDataInputStream in = kept != null ? kept : files.open(file, position);
        try {
            read(in, n);
        } catch (EOFException e) {
            throw new EOFException(file + " ends before byte " + (position + n));
        } catch (FSError e) {
            throw new IOException(e);
        } finally {
            if (kept == null) {
                if (position + n < end && files.mayStay()) {
                    kept = in;
                } else {
                    in.close();
                }
            }
        }
        filled = n;
        position += n;
        if (position == end) {
            release();
        }
        reporter.incrCounter(SharedShuffle.COUNTERS, SharedShuffle.BYTES, n);
        return true;
    }

    /** Reads the next bytes of the file into the buffer. */
    @SuppressWarnings("try") // a turn is only closed
    private void read(FSDataInputStream in, int bytes) throws IOException {
        if (turns == null) {
            in.readFully(buffer, 0, bytes);
            return;
        }
        for (int at = 0; at < bytes; at += turns.most()) {
            int some = Math.min(turns.most(), bytes - at);
            try (Turns.Turn turn = turns.take(position + at, some)) {
                in.readFully(buffer, at, some);
            }
        }
    }

    private void release() throws IOException {
        if (kept != null) {
            FSDataInputStream in = kept;
            kept = null;
            files.closed();
            in.close();
        }
    }

    @Override
    public void close() throws IOException {
        position = end;
        next = 0;
        filled = 0;
        buffer = null;
        release();
    }

    @Override
    public long getPos() {
        return position - (filled - next);
    }

    /** Accepts only the present position, because the caller reads from the beginning to the end. Decryption asks for it. */
    @Override
    public void seek(long target) throws IOException {
        if (target != getPos()) {
            throw new EOFException("a map output is read in order");
        }
    }

    @Override
    public boolean seekToNewSource(long target) {
        return false;
    }
}
