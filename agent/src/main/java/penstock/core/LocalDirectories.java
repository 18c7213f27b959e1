package penstock.core;

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
        List<String> directories = new ArrayList<>();
        for (String directory : configuration.getTrimmedStrings(LOCAL_DIRS)) {
            directories.add(new Path(directory).toUri().getPath());
        }
        Gates.serve(directories);
    }

    /** Returns the flow of a file, {@code <local dir>/usercache/USER/appcache/APPLICATION/...}. */
    public static String flow(String path) {
        Matcher m = APPLICATION.matcher(path);
        return m.find() ? m.group(1) : Names.UNATTRIBUTED;
    }
}
