package penstock.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.WritableByteChannel;

/** A governed file that is written from its beginning to its end. */
final class GatedChannel implements WritableByteChannel {
    private final WritableByteChannel out;
    private final LocalFile file;
    private boolean failed;

    GatedChannel(WritableByteChannel out, LocalFile file) {
        this.out = out;
        this.file = file;
    }

    @Override
    public int write(ByteBuffer from) throws IOException {
        file.before();
        failed = true;
        int n = out.write(from);
        failed = false;
        file.wrote(n);
        return n;
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
