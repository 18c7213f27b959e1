package penstock.spark;

import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;

/** A part of a governed file, read from its beginning. */
final class GatedInput extends FilterInputStream {
    private final LocalFile file;
    private long position;
    private long marked;

    GatedInput(InputStream in, LocalFile file, long offset) {
        super(in);
        this.file = file;
        this.position = offset;
        this.marked = offset;
        file.closeAfter(this);
    }

    @Override
    public int read() throws IOException {
        file.before(position, 1);
        int b = in.read();
        position += b < 0 ? 0 : 1;
        return b;
    }

    @Override
    public int read(byte[] b, int off, int len) throws IOException {
        file.before(position, len);
        int n = in.read(b, off, len);
        position += Math.max(n, 0);
        return n;
    }

    @Override
    public long skip(long count) throws IOException {
        long n = in.skip(count);
        position += n;
        return n;
    }

    @Override
    public synchronized void mark(int limit) {
        in.mark(limit);
        marked = position;
    }

    @Override
    public synchronized void reset() throws IOException {
        in.reset();
        position = marked;
    }

    @Override
    public void close() throws IOException {
        try {
            in.close();
        } finally {
            file.close(false);
        }
    }
}
