package penstock.task;

import java.io.IOException;
import java.io.OutputStream;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;
import penstock.core.Gate;
import penstock.core.Stream;

/**
 * A file that a task writes, below its buffer. A write waits only if the bytes written before have reached the mark, so
 * the file may exceed its mark by the length of a write. A write that is longer than a piece is split into pieces.
 */
class GovernedOutput extends OutputStream implements Syncable, StreamCapabilities {
    private static final int PIECE = 256 << 10;

    private final OutputStream out;
    private final Stream stream;
    private long position;
    private boolean failed = true;

    GovernedOutput(OutputStream out, Stream stream, long from) {
        this.out = out;
        this.stream = stream;
        this.position = from;
    }

    @Override
    public void write(int b) throws IOException {
        Gate.pass(stream, position, position + 1);
        out.write(b);
        position++;
    }

    @Override
    public void write(byte[] b, int off, int len) throws IOException {
        int at = off;
        int left = len;
        if (b != null && off >= 0 && len <= b.length - off) {
            for (; left > PIECE; left -= PIECE) {
                piece(b, at, PIECE);
                at += PIECE;
            }
        }
        piece(b, at, left);
    }

    private void piece(byte[] b, int off, int len) throws IOException {
        if (len > 0) {
            Gate.pass(stream, position, position + 1);
        }
        out.write(b, off, len);
        position += len;
    }

    @Override
    public void flush() throws IOException {
        out.flush();
    }

    @Override
    public void hflush() throws IOException {
        if (out instanceof Syncable) {
            ((Syncable) out).hflush();
        } else {
            out.flush();
        }
    }

    @Override
    public void hsync() throws IOException {
        if (out instanceof Syncable) {
            ((Syncable) out).hsync();
        } else {
            out.flush();
        }
    }

    @Override
    public void close() throws IOException {
        try {
            out.close();
            failed = false;
        } finally {
            Gate.close(stream, position, failed);
        }
    }

    @Override
    public boolean hasCapability(String capability) {
        return out instanceof StreamCapabilities && ((StreamCapabilities) out).hasCapability(capability);
    }
}
