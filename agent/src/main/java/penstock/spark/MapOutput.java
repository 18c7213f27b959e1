package penstock.spark;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.nio.channels.FileChannel;
import java.nio.channels.WritableByteChannel;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.spark.shuffle.api.ShuffleMapOutputWriter;
import org.apache.spark.shuffle.api.ShufflePartitionWriter;
import org.apache.spark.shuffle.api.WritableByteChannelWrapper;
import org.apache.spark.shuffle.api.metadata.MapOutputCommitMessage;
import org.apache.spark.shuffle.sort.io.LocalDiskShuffleMapOutputWriter;
import penstock.core.Gate;

/**
 * A map's output, which is written partition after partition into a temporary file. Spark does not pass on the file's
 * path, so the path is read from a private field. In a Spark without that field, the output is not governed. The file
 * is announced when it exists, and is renamed only after the daemon has opened it. In enforce mode the first write
 * waits for the daemon; in other modes the commit of a short map waits for a moment.
 *
 * <p>Spark must copy to the file's own channel, otherwise the kernel would not do the copy. So the gate is not in the
 * channel, but is passed before each copy.
 */
final class MapOutput implements ShuffleMapOutputWriter {
    private static final Field FILE = field();
    /**
     * The longest wait for the daemon to open the file. After that the file is renamed, and the daemon does not find
     * it.
     */
    static final long OPENING_NANOS = TimeUnit.MILLISECONDS.toNanos(20);
    private static final ThreadLocal<Channel> COPYING = new ThreadLocal<>();

    private final LocalDiskShuffleMapOutputWriter local;
    private final long openingNanos;
    private LocalFile file;
    private boolean announced;

    MapOutput(LocalDiskShuffleMapOutputWriter local, long openingNanos) {
        this.local = local;
        this.openingNanos = openingNanos;
    }

    private static Field field() {
        try {
            Field file = LocalDiskShuffleMapOutputWriter.class.getDeclaredField("outputTempFile");
            file.setAccessible(true);
            return file.getType() == File.class ? file : null;
        } catch (ReflectiveOperationException | RuntimeException e) {
            return null;
        }
    }

    /** Whether this Spark has the private field. */
    static boolean isKnown() {
        return FILE != null;
    }

    private LocalFile file() {
        if (!announced) {
            announced = true;
            try {
                file = LocalFiles.writing((File) FILE.get(local), 0);
            } catch (Throwable t) {
                Gate.failed(t);
            }
        }
        return file;
    }

    @Override
    public ShufflePartitionWriter getPartitionWriter(int partition) throws IOException {
        return new Partition(local.getPartitionWriter(partition));
    }

    @Override
    public MapOutputCommitMessage commitAllPartitions(long[] checksums) throws IOException {
        boolean failed = true;
        if (file != null) {
            file.renamed(openingNanos);
        }
        try {
            MapOutputCommitMessage message = local.commitAllPartitions(checksums);
            failed = false;
            return message;
        } finally {
            close(failed);
        }
    }

    @Override
    public void abort(Throwable error) throws IOException {
        try {
            local.abort(error);
        } finally {
            close(true);
        }
    }

    private void close(boolean failed) {
        COPYING.remove();
        if (file != null) {
            file.close(failed);
        }
    }

    private final class Partition implements ShufflePartitionWriter {
        private final ShufflePartitionWriter local;

        Partition(ShufflePartitionWriter local) {
            this.local = local;
        }

        @Override
        public OutputStream openStream() throws IOException {
            OutputStream out = local.openStream();
            LocalFile target = file();
            return target == null ? out : new Output(out, target);
        }

        @Override
        public Optional<WritableByteChannelWrapper> openChannelWrapper() throws IOException {
            Optional<WritableByteChannelWrapper> channel = local.openChannelWrapper();
            LocalFile target = channel.isPresent() ? file() : null;
            return target == null ? channel : Optional.of(new Channel(channel.get(), target));
        }

        @Override
        public long getNumBytesWritten() {
            return local.getNumBytesWritten();
        }
    }

    private static final class Output extends OutputStream {
        private static final int PIECE = 256 << 10;
        private final OutputStream out;
        private final LocalFile file;

        Output(OutputStream out, LocalFile file) {
            this.out = out;
            this.file = file;
        }

        @Override
        public void write(int b) throws IOException {
            file.before();
            out.write(b);
            file.wrote(1);
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
                file.before();
            }
            out.write(b, off, len);
            file.wrote(Math.max(len, 0));
        }

        @Override
        public void flush() throws IOException {
            out.flush();
        }

        @Override
        public void close() throws IOException {
            out.close();
        }
    }

    /** Returns the governed file that this thread writes through that channel, if any. */
    static LocalFile target(WritableByteChannel out) {
        Channel current = COPYING.get();
        return current != null && current.channel == out ? current.file : null;
    }

    /** Spark requests the channel from this wrapper before each copy. */
    private static final class Channel implements WritableByteChannelWrapper {
        private final WritableByteChannelWrapper local;
        private final LocalFile file;
        private WritableByteChannel channel;

        Channel(WritableByteChannelWrapper local, LocalFile file) {
            this.local = local;
            this.file = file;
        }

        @Override
        public WritableByteChannel channel() {
            channel = local.channel();
            COPYING.set(this);
            reached();
            file.before();
            return channel;
        }

        private void reached() {
            try {
                if (channel instanceof FileChannel) {
                    file.at(((FileChannel) channel).position());
                }
            } catch (Throwable t) {
                Gate.failed(t);
            }
        }

        @Override
        public void close() throws IOException {
            COPYING.remove();
            reached();
            local.close();
        }
    }
}
