package penstock.core;

import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** A NodeManager's local directories, whose services send files of all applications. */
public final class LocalDirectories {
    private static final String LOCAL_DIRS = "yarn.nodemanager.local-dirs";
    /** The rest of a path is chosen by the application, so the first match counts. */
    private static final Pattern APPLICATION =
            Pattern.compile("/usercache/[^/]+/appcache/(application_[0-9]{13}_[0-9]{4,10})/");

    private LocalDirectories() { }

    /** Called before a service starts to serve files of these directories. */
    public static void serve(Configuration configuration) {
        Gates.serve(of(configuration));
    }

    /**
     * Returns the directories as configured, and after them the directories to which they lead through links:
     * MapReduce's shuffle opens files by their configured paths, and Spark's by their canonical ones.
     */
    static List<String> of(Configuration configuration) {
        List<String> directories = new ArrayList<>();
        List<String> canonical = new ArrayList<>();
        for (String directory : configuration.getTrimmedStrings(LOCAL_DIRS)) {
            String path = new Path(directory).toUri().getPath();
            directories.add(path);
            try {
                canonical.add(new File(path).getCanonicalPath());
            } catch (Throwable e) { // a broken disk; the other directories are governed
                Gate.failed(e);
            }
        }
        for (String path : canonical) {
            if (!directories.contains(path) && directories.size() < Frames.MAX_DIRECTORIES) {
                directories.add(path);
            }
        }
        return directories;
    }

    /** Returns the flow of a file, {@code <local dir>/usercache/USER/appcache/APPLICATION/...}. */
    public static String flow(String path) {
        Matcher m = APPLICATION.matcher(path);
        return m.find() ? m.group(1) : Names.UNATTRIBUTED;
    }
}
