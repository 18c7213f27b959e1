package penstock.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.WritableByteChannel;

/** A governed file that is written from its beginning to its end. */
final class GatedChannel implements WritableByteChannel {
    /** Limits how far a write overshoots its mark, because a buffer may be as large as a block. */
    private static final int PIECE = 256 << 10;

    private final WritableByteChannel out;
    private final LocalFile file;
    private boolean failed;

    GatedChannel(WritableByteChannel out, LocalFile file) {
        this.out = out;
        this.file = file;
    }

    @Override
    public int write(ByteBuffer from) throws IOException {
        int begun = from.position();
        int end = from.limit();
        try {
            int next;
            do {
                next = Math.min(end, from.position() + PIECE);
                from.limit(next);
                file.before();
                failed = true;
                int n = out.write(from);
                failed = false;
                file.wrote(n);
            } while (from.position() == next && next < end);
        } finally {
            from.limit(end);
        }
        return from.position() - begun;
    }

    @Override
    public boolean isOpen() {
        return out.isOpen();
    }

    @Override
    public void close() throws IOException {
        try {
            out.close();
        } finally {
            file.close(failed);
        }
    }
}
