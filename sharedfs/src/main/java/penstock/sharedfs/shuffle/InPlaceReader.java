package penstock.sharedfs.shuffle;

import java.io.Closeable;
import java.io.IOException;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSError;
import org.apache.hadoop.io.DataInputBuffer;
import org.apache.hadoop.io.compress.CompressionCodec;
import org.apache.hadoop.mapred.IFile;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapreduce.security.IntermediateEncryptedStream;

/**
 * Hadoop's reader of one map output, made at the first record. Until then it holds no descriptor, buffer or
 * decompressor.
 */
final class InPlaceReader<K, V> extends IFile.Reader<K, V> implements Closeable {
    private final JobConf job;
    private final MapOutput output;
    private final SegmentInput input;
    private final CompressionCodec codec;
    private final DataInputBuffer lastValue;
    private IFile.Reader<K, V> reader;

    /**
     * Returns a reader.
     *
     * @param lastValue the buffer into which all readers of a merge read values. The merge takes readers of other classes
     *     than its own for readers of memory, and would let them overwrite each other's bytes
     */
    InPlaceReader(JobConf job, MapOutput output, SegmentInput input, CompressionCodec codec,
            DataInputBuffer lastValue) throws IOException {
        super(job, null, output.stored, null, null);
        this.job = job;
        this.output = output;
        this.input = input;
        this.codec = codec;
        this.lastValue = lastValue;
    }

    @Override
    public boolean nextRawKey(DataInputBuffer key) throws IOException {
        try {
            if (reader == null) {
                FSDataInputStream in = IntermediateEncryptedStream.wrapIfNecessary(job, new FSDataInputStream(input),
                    output.file);
                reader = new IFile.Reader<>(job, in, output.stored, codec, null);
            }
            boolean found = reader.nextRawKey(key);
            bytesRead = reader.bytesRead;
            return found;
        } catch (IOException | RuntimeException | FSError | InternalError e) { // the last: broken compressed bytes
            throw failed(e);
        }
    }

    @Override
    public void nextRawValue(DataInputBuffer value) throws IOException {
        try {
            reader.nextRawValue(lastValue);
            value.reset(lastValue.getData(), lastValue.getLength());
            bytesRead = reader.bytesRead;
        } catch (IOException | RuntimeException | FSError | InternalError e) {
            throw failed(e);
        }
    }

    @Override
    public long getPosition() throws IOException {
        return reader == null ? 0 : reader.getPosition();
    }

    /** Reads the rest, so that the checksum of the map output is verified, and closes the file. */
    @Override
    public void close() throws IOException {
        try {
            if (reader != null) {
                reader.close();
            }
        } catch (IOException | RuntimeException | FSError | InternalError e) {
            throw failed(e);
        } finally {
            reader = null;
            input.close();
        }
    }

    /** Closes the file without reading the rest. */
    void abandon() throws IOException {
        input.close();
    }

    private IOException failed(Throwable e) {
        return new IOException("cannot read " + output + " in place: " + e + ". If this attempt of the reduce fails, the"
            + " next one uses Hadoop's ordinary shuffle", e);
    }
}
