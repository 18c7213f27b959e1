package penstock.core;

import java.io.File;

/** Announces local files for the application of this process. */
public interface Opener {
    /**
     * Returns null if the file is not governed. Never throws.
     *
     * @param to the end of a read; 0 for a write
     */
    Stream open(boolean write, File file, long from, long to);
}
