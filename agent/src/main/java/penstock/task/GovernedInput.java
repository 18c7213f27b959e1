package penstock.task;

import java.io.File;
import java.io.FileDescriptor;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.HasFileDescriptor;
import org.apache.hadoop.fs.StreamCapabilities;
import penstock.core.Gate;
import penstock.core.Stream;
import penstock.core.Window;

/**
 * A file that a task reads, below its buffer. Sequential reads go through a {@link Window}; positioned reads, which
 * several threads may do at once, announce just their ranges. A vectored read waits before it begins: its ranges are
 * announced together, and ranges close to each other are joined.
 */
class GovernedInput extends FSInputStream implements HasFileDescriptor, StreamCapabilities {
    /** Ranges with a smaller gap are joined: the disk reads through the gap. */
    private static final long GAP = 64 << 10;
    /** The most streams that a vectored read has at once. */
    static final int BATCH = 32;

    private final FSDataInputStream in;
    private final Container container;
    private final File file;
    private final long length;
    private final Window window;

    GovernedInput(FSDataInputStream in, Container container, File file) {
        this.in = in;
        this.container = container;
        this.file = file;
        this.length = file.length();
        this.window = new Window(container, file, length);
    }

    @Override
    public int read() throws IOException {
        window(1);
        return in.read();
    }

    @Override
    public int read(byte[] b, int off, int len) throws IOException {
        window(len);
        return in.read(b, off, len);
    }

    private void window(int count) {
        try {
            window.read(in.getPos(), count);
        } catch (Throwable t) {
            Gate.failed(t);
        }
    }

    @Override
    public int read(long position, byte[] b, int off, int len) throws IOException {
        range(position, len);
        return in.read(position, b, off, len);
    }

    @Override
    public void readFully(long position, byte[] b, int off, int len) throws IOException {
        range(position, len);
        in.readFully(position, b, off, len);
    }

    @Override
    public void readFully(long position, byte[] b) throws IOException {
        range(position, b.length);
        in.readFully(position, b);
    }

    private void range(long position, int count) {
        try {
            long end = Math.min(position + count, length);
            if (position >= 0 && position < end) {
                Window.await(Window.announce(container, file, position, end), position, end);
            }
        } catch (Throwable t) {
            Gate.failed(t);
        }
    }

    @Override
    public int minSeekForVectorReads() {
        return in.minSeekForVectorReads();
    }

    @Override
    public int maxReadSizeForVectorReads() {
        return in.maxReadSizeForVectorReads();
    }

    @Override
    public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate) throws IOException {
        ranges(ranges);
        in.readVectored(ranges, allocate);
    }

    /** Does not exist in Hadoop 3.3.6, and is not called there; nor does the one above in Hadoop 3.2. */
    @Override
    public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate,
            Consumer<ByteBuffer> release) throws IOException {
        ranges(ranges);
        in.readVectored(ranges, allocate, release);
    }

    private void ranges(List<? extends FileRange> asked) {
        try {
            List<long[]> whole = coalesce(asked, length);
            for (int i = 0; i < whole.size(); i += BATCH) {
                List<long[]> batch = whole.subList(i, Math.min(i + BATCH, whole.size()));
                List<Stream> streams = new ArrayList<>(batch.size());
                for (long[] r : batch) {
                    streams.add(Window.announce(container, file, r[0], r[1]));
                }
                for (int k = 0; k < streams.size(); k++) {
                    Window.await(streams.get(k), batch.get(k)[0], batch.get(k)[1]);
                }
            }
        } catch (Throwable t) {
            Gate.failed(t);
        }
    }

    /**
     * Returns start and end of the ranges within a file of that length, ascending and joined. Invalid ranges are left
     * to Hadoop, which refuses them.
     */
    static List<long[]> coalesce(List<? extends FileRange> asked, long length) {
        List<long[]> sorted = new ArrayList<>();
        if (asked != null) {
            for (FileRange r : asked) {
                long end = r == null ? 0 : Math.min(r.getOffset() + r.getLength(), length);
                if (r != null && r.getOffset() >= 0 && r.getOffset() < end) {
                    sorted.add(new long[] {r.getOffset(), end});
                }
            }
        }
        sorted.sort((a, b) -> Long.compare(a[0], b[0]));
        List<long[]> whole = new ArrayList<>();
        for (long[] r : sorted) {
            long[] last = whole.isEmpty() ? null : whole.get(whole.size() - 1);
            if (last != null && r[0] - last[1] < GAP) {
                last[1] = Math.max(last[1], r[1]);
            } else {
                whole.add(r);
            }
        }
        return whole;
    }

    @Override
    public void seek(long position) throws IOException {
        in.seek(position);
    }

    @Override
    public long getPos() throws IOException {
        return in.getPos();
    }

    @Override
    public boolean seekToNewSource(long position) throws IOException {
        return in.seekToNewSource(position);
    }

    @Override
    public long skip(long n) throws IOException {
        return in.skip(n);
    }

    @Override
    public int available() throws IOException {
        return in.available();
    }

    @Override
    public void close() throws IOException {
        try {
            in.close();
        } finally {
            try {
                window.close();
            } catch (Throwable t) {
                Gate.failed(t);
            }
        }
    }

    @Override
    public FileDescriptor getFileDescriptor() throws IOException {
        return in.getFileDescriptor();
    }

    @Override
    public boolean hasCapability(String capability) {
        return in.hasCapability(capability);
    }
}
