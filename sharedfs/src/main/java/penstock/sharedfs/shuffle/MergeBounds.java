package penstock.sharedfs.shuffle;

/**
 * How many map outputs one pass of the merge reads, and how much memory each may hold.
 *
 * <p>A merge holds the next bytes of each of its inputs. A small buffer costs many small reads, which parallel file
 * systems serve slowly; so the memory is divided among the inputs. If less than {@link #LEAST_BUFFER} would be left for
 * each, a pass takes fewer inputs, and its result is written to the task's local directory and merged again.
 */
final class MergeBounds {
    /** Least number of bytes of a read, if the map output has as many. */
    static final int LEAST_BUFFER = 32 << 10;
    /** Most bytes of a read. More than a parallel file system's own request (4 MiB by default in Lustre) gains nothing. */
    static final int MOST_BUFFER = 4 << 20;
    /** The least number of inputs of a pass, with any memory: Hadoop's default of mapreduce.task.io.sort.factor. */
    static final int LEAST_INPUTS = 10;
    /** Bytes of a decompressor: two buffers of 256 KiB, the default of Snappy and LZ4 in Hadoop. */
    static final long DECOMPRESSOR = 512 << 10;

    /** The most inputs of a pass. */
    final int inputs;
    /** The most bytes that an input holds in its buffer. */
    final int buffer;

    /**
     * Divides the memory, in bytes, among the outputs.
     *
     * @param others bytes that an open map output holds besides its buffer
     */
    MergeBounds(long memory, int outputs, long others) {
        inputs = (int) Math.max(LEAST_INPUTS, Math.min(outputs, memory / (LEAST_BUFFER + others)));
        buffer = (int) Math.max(LEAST_BUFFER, Math.min(MOST_BUFFER, memory / inputs - others));
    }
}
