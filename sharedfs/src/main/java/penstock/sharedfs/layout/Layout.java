package penstock.sharedfs.layout;

import java.io.IOException;
import java.util.List;
import java.util.Map;

/** A parallel file system as its own tools show it. Safe for use by several threads. */
public interface Layout {
    /**
     * Asks for the placements of files, in one batch.
     *
     * @param files absolute paths below the mount, without control characters; at most {@link Locator#BATCH}
     * @return the placements by path, with servers as the tool names them; files without a valid answer are absent
     * @throws IOException if the file system gives no answers at all, so that asking again soon is of no use
     */
    Map<String, Placement> ask(List<String> files) throws IOException;

    /** Returns the length in bytes of the ranges that usually are on one server, as the size of blocks. */
    long blockSize();

    /**
     * Creates the empty file near this process, so that its data is written to this machine's server.
     *
     * @param file an absolute path at which nothing exists
     * @throws IOException if there is no such server, or if it fails; a file may then exist
     */
    void createNear(String file) throws IOException;
}
