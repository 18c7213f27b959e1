package penstock.spark;

import java.lang.invoke.MethodHandles;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import penstock.core.Feature;
import penstock.core.Point;

/**
 * The instrumented methods of Spark's shuffle service in a NodeManager. In Spark's distribution, the service's jar has a
 * netty of its own, whose classes have a prefix (org.sparkproject). There, and in a class loader of the service's own,
 * copies of our classes take the place of our classes.
 */
public final class ShuffleServicePoints {
    private static final String SERVICE = "org.apache.spark.network.yarn.YarnShuffleService";
    public static final String NAME = "blocks sent by Spark's shuffle service";
    private static final Point INITIALISED = new Point(SERVICE, "serviceInit",
            "(Lorg/apache/hadoop/conf/Configuration;)V", ShuffleServiceAdvice.Serve.class);

    /** The class that refers to netty, and the method of which the first argument is a netty channel. */
    public static final String TRANSPORT = ExecutorPoints.TRANSPORT;
    public static final String PIPELINE = "initializePipeline";

    /** The instrumented classes. */
    public static final List<String> TYPES = Collections.unmodifiableList(Arrays.asList(SERVICE, TRANSPORT));

    /** The allow-list. */
    public static final List<Feature> ALL = features("", ShuffleServiceAdvice.Pipeline.class.getName());

    /** Our classes that use netty, each one before those that extend or implement it. */
    public static final List<String> WITH_NETTY = Collections.unmodifiableList(Arrays.asList(Served.class.getName(),
            Sending.class.getName(), Sending.class.getName() + "$Held", ShuffleService.class.getName()));

    private ShuffleServicePoints() { }

    /**
     * Returns the features whose advice uses the copies with this mark, for a netty whose names begin with this prefix,
     * such as org/sparkproject/.
     */
    public static List<Feature> copied(String prefix, String mark) {
        return features(prefix, copyOf(ShuffleServiceAdvice.class.getName(), mark) + "$Pipeline");
    }

    /** Returns the name of the copy of our class. The copy is in the same package, and its simple name begins with the mark. */
    public static String copyOf(String type, String mark) {
        return type.replace("penstock.spark.", "penstock.spark." + mark);
    }

    /** Returns the right to define classes in this package. */
    public static MethodHandles.Lookup lookup() {
        return MethodHandles.lookup();
    }

    private static List<Feature> features(String prefix, String advice) {
        String channel = ExecutorPoints.CHANNEL.replace("io/netty/", prefix + "io/netty/");
        return Collections.unmodifiableList(Arrays.asList(
                new Feature(NAME, INITIALISED,
                        new Point(TRANSPORT, PIPELINE, channel + "Z)" + ExecutorPoints.HANDLER, advice))
                        .onlyWith(SERVICE),
                new Feature(NAME, INITIALISED, // 3.5
                        new Point(TRANSPORT, PIPELINE, channel + ")" + ExecutorPoints.HANDLER, advice))
                        .onlyWith(SERVICE)));
    }
}
