package penstock.spark;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import penstock.core.Names;

/**
 * HDFS whose clients are called by the application that this process works for, set as
 * {@code fs.hdfs.impl}. Spark names a client after whatever task came first, if it names
 * it at all; the DataNodes then cannot tell one application from another. In a process
 * that works for no application, such as a shell or a driver outside of the cluster, it is
 * a {@link DistributedFileSystem} and no more.
 *
 * <p>The name has to be there when the client is made, and Spark puts its own into each
 * job's configuration: so it is set here, in a copy that nobody else writes to.
 */
public final class NamedDistributedFileSystem extends DistributedFileSystem {
    /** The part of a DFS client's name that its configuration decides. */
    static final String TASK = "mapreduce.task.attempt.id";

    private final String flow;

    /** Called by Hadoop, by reflection. */
    public NamedDistributedFileSystem() {
        this(Names.ofProcess(System.getenv("CONTAINER_ID"), System.getProperty(Names.APPLICATION_PROPERTY)));
    }

    /** @param flow null outside of an application */
    NamedDistributedFileSystem(String flow) {
        this.flow = flow;
    }

    @Override
    public void initialize(URI uri, Configuration conf) throws IOException {
        if (flow == null) {
            super.initialize(uri, conf);
            return;
        }
        Configuration named = new Configuration(conf);
        named.set(TASK, Names.taskOf(flow));
        super.initialize(uri, named);
    }
}
