package penstock.spark;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import penstock.core.Names;

/**
 * An HDFS client with the name of this process's application, set as {@code fs.hdfs.impl}. Spark names a client after
 * the first task, or not at all; the DataNodes then cannot distinguish applications. In a process without an
 * application, such as a shell or a driver outside of the cluster, this class is a plain {@link DistributedFileSystem}.
 *
 * <p>The name must be set when the client is created, and Spark overwrites it in each job's configuration. So the name
 * is set here, in a private copy of the configuration.
 */
public final class NamedDistributedFileSystem extends DistributedFileSystem {
    /** The property that determines a part of a DFS client's name. */
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
