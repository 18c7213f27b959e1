package penstock.core;

import java.io.File;
import java.io.IOException;
import java.util.List;

/** Canonical paths: absolute and without links. The daemon follows no links below a directory. */
public final class Canonical {
    private Canonical() { }

    /** Adds a directory's path, with a slash at the end, to the list of a HELLO's directories if there is room. */
    public static void add(List<String> directories, File directory) throws IOException {
        String path = directory.getCanonicalPath();
        if (path.length() > 1 && !directories.contains(path + "/")
                && directories.size() < Frames.MAX_DIRECTORIES) {
            directories.add(path + "/");
        }
    }

    /** Returns the file's canonical path, if it is below one of these directories; else null. */
    public static File below(List<String> directories, File file) throws IOException {
        String path = file.getCanonicalPath();
        for (String directory : directories) {
            if (path.startsWith(directory)) {
                return new File(path);
            }
        }
        return null;
    }
}
