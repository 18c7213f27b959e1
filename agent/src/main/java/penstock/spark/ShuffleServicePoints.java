package penstock.spark;

import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import penstock.core.Feature;
import penstock.core.Point;

/**
 * The instrumented methods of Spark's shuffle service in a NodeManager that has it on its class path, with netty under
 * its own name. Spark's distribution has a jar in which netty's classes have other names; there the feature is left
 * out.
 */
public final class ShuffleServicePoints {
    private static final String SERVICE = "org.apache.spark.network.yarn.YarnShuffleService";
    private static final String NAME = "blocks sent by Spark's shuffle service";
    private static final Point INITIALISED = new Point(SERVICE, "serviceInit",
            "(Lorg/apache/hadoop/conf/Configuration;)V", ShuffleServiceAdvice.Serve.class);

    /** The allow-list. */
    public static final List<Feature> ALL = Collections.unmodifiableList(Arrays.asList(
            new Feature(NAME, INITIALISED,
                    new Point(ExecutorPoints.TRANSPORT, "initializePipeline",
                            ExecutorPoints.CHANNEL + "Z)" + ExecutorPoints.HANDLER,
                            ShuffleServiceAdvice.Pipeline.class)).onlyWith(SERVICE),
            new Feature(NAME, INITIALISED, // 3.5
                    new Point(ExecutorPoints.TRANSPORT, "initializePipeline",
                            ExecutorPoints.CHANNEL + ")" + ExecutorPoints.HANDLER,
                            ShuffleServiceAdvice.Pipeline.class)).onlyWith(SERVICE)));

    private ShuffleServicePoints() { }
}
