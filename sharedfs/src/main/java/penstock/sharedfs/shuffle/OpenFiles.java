package penstock.sharedfs.shuffle;

import java.io.IOException;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSError;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Opens the files of a merge, and bounds how many stay open between two reads.
 *
 * <p>A merge reads its inputs about in turn. Of a cache that drops the file that was not read for longest, every read
 * would miss as soon as there are more inputs than places. So an input that has a place keeps it until its end, and the
 * others open their file for each read. Not for use by several threads.
 */
final class OpenFiles {
    /** Bytes of Hadoop's own buffer in front of a file. Larger reads go past it, and all reads here are larger. */
    private static final int NO_BUFFER = 512;

    private final FileSystem fs;
    private int places;

    /** Returns an opener that lets so many files stay open. */
    OpenFiles(FileSystem fs, int places) {
        this.fs = fs;
        this.places = places;
    }

    /**
     * Opens the file at this byte.
     *
     * @throws IOException if it cannot be read; Hadoop's local file system throws an Error, which would end the task
     *     as if a local disk were broken
     */
    FSDataInputStream open(Path file, long position) throws IOException {
        FSDataInputStream in = fs.open(file, NO_BUFFER);
        try {
            in.seek(position);
            return in;
        } catch (IOException | FSError e) {
            in.close();
            throw e instanceof IOException ? (IOException) e : new IOException(e);
        }
    }

    /** Reports whether one more file may stay open; if so, the caller must call {@link #closed} later. */
    boolean mayStay() {
        if (places == 0) {
            return false;
        }
        places--;
        return true;
    }

    /** A file that stayed open has been closed. */
    void closed() {
        places++;
    }
}
