package penstock.spark;

import java.io.File;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.network.buffer.FileSegmentManagedBuffer;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.util.TransportConf;
import penstock.core.Canonical;
import penstock.core.Gate;
import penstock.core.Gates;
import penstock.core.Names;

/**
 * The files that Spark's shuffle service sends on a standalone cluster, in a Worker or by itself. Paths do not name
 * applications there. A block belongs to the application that the request names. The name is a claim. The directories
 * that applications register with the service would be claims, too. The ends of the connection are the evidence. So
 * nothing is remembered about applications.
 */
public final class WorkersFiles extends Served {
    private static final WorkersFiles ALL = new WorkersFiles();

    private static volatile List<String> directories = Collections.emptyList();

    private WorkersFiles() { }

    public static Served all() {
        return ALL;
    }

    /** Called before the service listens. Executors keep their files below these directories of the Worker. */
    public static void serve(SparkConf conf) {
        String environment = System.getenv("SPARK_LOCAL_DIRS");
        String names = environment != null ? environment
                : conf.get("spark.local.dir", System.getProperty("java.io.tmpdir"));
        List<String> found = new ArrayList<>();
        for (String name : names.split(",")) {
            try {
                Canonical.add(found, new File(name));
            } catch (Throwable t) { // a broken disk; the other directories are governed
                Gate.failed(t);
            }
        }
        directories = Collections.unmodifiableList(found);
        Gates.serve(found);
    }

    /** Returns the same part of a file, with the application that the request names. */
    public static ManagedBuffer requested(ManagedBuffer block, String application, TransportConf conf) {
        if (!(block instanceof FileSegmentManagedBuffer)) {
            return block;
        }
        FileSegmentManagedBuffer segment = (FileSegmentManagedBuffer) block;
        String flow = Names.ofProcess(null, application);
        return new FileSegmentManagedBuffer(conf,
                new RequestedFile(segment.getFile(), flow == null ? Names.UNATTRIBUTED : flow), segment.getOffset(),
                segment.getLength());
    }

    @Override
    File governed(File file) {
        try {
            File canonical = file instanceof RequestedFile ? Canonical.below(directories, file) : null;
            return canonical == null ? null : new RequestedFile(canonical, ((RequestedFile) file).flow);
        } catch (Throwable t) {
            Gate.failed(t);
            return null;
        }
    }

    @Override
    String flow(File governed) {
        return ((RequestedFile) governed).flow;
    }
}
