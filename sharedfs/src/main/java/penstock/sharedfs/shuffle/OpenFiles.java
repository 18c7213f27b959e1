package penstock.sharedfs.shuffle;

import java.io.IOException;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSError;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Opens the files of a merge, and bounds how many stay open between two reads.
 *
 * <p>A merge reads its inputs about in turn. If there are more inputs than places, each read would miss a cache that
 * closes the least recently used file. So an input that has a place keeps it until its end, and the other inputs open
 * their files for each read. Not safe for use by several threads.
 */
final class OpenFiles {
    /** Bytes of Hadoop's own buffer in front of a file. Larger reads go past it, and all reads here are larger. */
    private static final int NO_BUFFER = 512;

    private final FileSystem fs;
    private int places;

    /** Returns an opener that lets at most {@code places} files stay open. */
    OpenFiles(FileSystem fs, int places) {
        this.fs = fs;
        this.places = places;
    }

    /**
     * Opens the file at a byte.
     *
     * @throws IOException if the file cannot be read. Hadoop's local file system throws an Error, which would end the task
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

    /** Gives back the place of a file that has been closed. */
    void closed() {
        places++;
    }
}
