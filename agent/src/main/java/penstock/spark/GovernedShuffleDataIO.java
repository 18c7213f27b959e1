package penstock.spark;

import java.io.IOException;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.shuffle.api.ShuffleDataIO;
import org.apache.spark.shuffle.api.ShuffleDriverComponents;
import org.apache.spark.shuffle.api.ShuffleExecutorComponents;
import org.apache.spark.shuffle.api.ShuffleMapOutputWriter;
import org.apache.spark.shuffle.api.SingleSpillShuffleMapOutputWriter;
import org.apache.spark.shuffle.sort.io.LocalDiskShuffleDataIO;
import org.apache.spark.shuffle.sort.io.LocalDiskShuffleMapOutputWriter;
import penstock.core.Gate;

/**
 * Spark's shuffle files on local disks, with a gate before each write; set as {@code
 * spark.shuffle.sort.io.plugin.class}. Everything except the waits is Spark's own {@link LocalDiskShuffleDataIO}. A
 * plug-in cannot intercept reads, spills and sending: the agent governs these, if it is loaded.
 */
public final class GovernedShuffleDataIO implements ShuffleDataIO {
    static final String SOCKET = "spark.hadoop.penstock.socket";
    static final String DEFAULT_SOCKET = "/run/penstock/agent.sock";

    private final LocalDiskShuffleDataIO local;
    private final SparkConf conf;

    /** Called by Spark, by reflection. */
    public GovernedShuffleDataIO(SparkConf conf) {
        this.conf = conf;
        this.local = new LocalDiskShuffleDataIO(conf);
    }

    @Override
    public ShuffleExecutorComponents executor() {
        return new Executor(local.executor(), conf);
    }

    @Override
    public ShuffleDriverComponents driver() {
        return local.driver();
    }

    private static final class Executor implements ShuffleExecutorComponents {
        private final ShuffleExecutorComponents local;
        private final SparkConf conf;

        Executor(ShuffleExecutorComponents local, SparkConf conf) {
            this.local = local;
            this.conf = conf;
        }

        @Override
        public void initializeExecutor(String application, String executor, Map<String, String> more) {
            local.initializeExecutor(application, executor, more);
            try {
                LocalFiles.connect(SparkEnv.get().blockManager().diskBlockManager().localDirs(),
                        conf.get(SOCKET, DEFAULT_SOCKET));
            } catch (Throwable t) {
                Gate.failed(t);
            }
        }

        @Override
        public ShuffleMapOutputWriter createMapOutputWriter(int shuffle, long map, int partitions)
                throws IOException {
            ShuffleMapOutputWriter writer = local.createMapOutputWriter(shuffle, map, partitions);
            return writer instanceof LocalDiskShuffleMapOutputWriter && MapOutput.isKnown()
                    ? new MapOutput((LocalDiskShuffleMapOutputWriter) writer, MapOutput.OPENING_NANOS) : writer;
        }

        /** A spill that is only renamed: it passed its gate when it was written. */
        @Override
        public Optional<SingleSpillShuffleMapOutputWriter> createSingleFileMapOutputWriter(int shuffle, long map)
                throws IOException {
            return local.createSingleFileMapOutputWriter(shuffle, map);
        }
    }
}
