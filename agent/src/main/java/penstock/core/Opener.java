package penstock.core;

import java.io.File;

/** Announces local files for whoever this process works for. */
public interface Opener {
    /**
     * Null if it goes ungoverned. Never throws.
     *
     * @param to where a read ends; 0 for a write
     */
    Stream open(boolean write, File file, long from, long to);
}
