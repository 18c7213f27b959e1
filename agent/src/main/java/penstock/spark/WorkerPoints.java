package penstock.spark;

import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import penstock.core.Feature;
import penstock.core.Point;

/** The instrumented methods of Spark's shuffle service on a standalone cluster, in a Worker or by itself. */
public final class WorkerPoints {
    private static final String RESOLVER = "org.apache.spark.network.shuffle.ExternalShuffleBlockResolver";
    private static final String BUFFER = ")Lorg/apache/spark/network/buffer/ManagedBuffer;";
    private static final Point BLOCKS = new Point(RESOLVER, "getContinuousBlocksData",
            "(Ljava/lang/String;Ljava/lang/String;IJII" + BUFFER, WorkerAdvice.Requested.class);
    private static final Point CACHED = new Point(RESOLVER, "getRddBlockData",
            "(Ljava/lang/String;Ljava/lang/String;II" + BUFFER, WorkerAdvice.Requested.class);

    /** The allow-list. */
    public static final List<Feature> ALL = Collections.unmodifiableList(Arrays.asList(
            new Feature("local directories",
                    new Point("org.apache.spark.deploy.ExternalShuffleService", "start", "()V",
                            WorkerAdvice.Serve.class)),
            new Feature(ShuffleServicePoints.NAME, BLOCKS, CACHED,
                    new Point(ExecutorPoints.TRANSPORT, ShuffleServicePoints.PIPELINE,
                            ExecutorPoints.CHANNEL + "Z)" + ExecutorPoints.HANDLER, WorkerAdvice.Pipeline.class)),
            new Feature(ShuffleServicePoints.NAME, BLOCKS, CACHED, // 3.5
                    new Point(ExecutorPoints.TRANSPORT, ShuffleServicePoints.PIPELINE,
                            ExecutorPoints.CHANNEL + ")" + ExecutorPoints.HANDLER, WorkerAdvice.Pipeline.class))));

    private WorkerPoints() { }
}
