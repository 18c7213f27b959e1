package penstock.sharedfs.shuffle;

import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.TaskAttemptID;

/** Where one map attempt's output for this reduce lies. */
final class MapOutput {
    final TaskAttemptID attempt;
    /** The file with the outputs for all reduces, or null if there is no record for this one. */
    final Path file;
    /** The first byte in the file. */
    final long offset;
    /** Bytes in the file without those that encryption adds: records, perhaps compressed, and their checksum. */
    final long stored;
    /** Bytes in the file with those that encryption adds. */
    final long length;
    /** Bytes of the records. */
    final long raw;

    MapOutput(TaskAttemptID attempt, Path file, long offset, long length, long stored, long raw) {
        this.attempt = attempt;
        this.file = file;
        this.offset = offset;
        this.length = length;
        this.stored = stored;
        this.raw = raw;
    }

    @Override
    public String toString() {
        return "the output of " + attempt + " in " + file;
    }
}
