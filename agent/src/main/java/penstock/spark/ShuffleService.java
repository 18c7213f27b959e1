package penstock.spark;

import java.io.File;
import java.io.IOException;
import penstock.core.Gate;
import penstock.core.LocalDirectories;
import penstock.core.Names;

/**
 * The files that Spark's shuffle service sends in a NodeManager, for all applications. A file belongs to the application
 * in whose directory it is. The application that a request names has registered the directory, and so could name another
 * application's; the path cannot be wrong about its owner. As with map outputs, the ends of the connection are evidence.
 */
public final class ShuffleService extends Served {
    private static final ShuffleService ALL = new ShuffleService();

    private ShuffleService() { }

    public static Served all() {
        return ALL;
    }

    @Override
    File governed(File file) {
        try {
            File canonical = file.getCanonicalFile();
            return flow(canonical).equals(Names.UNATTRIBUTED) ? null : canonical;
        } catch (IOException | RuntimeException e) {
            Gate.failed(e);
            return null;
        }
    }

    @Override
    String flow(File governed) {
        return LocalDirectories.flow(governed.getPath());
    }
}
