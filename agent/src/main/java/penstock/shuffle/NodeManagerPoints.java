package penstock.shuffle;

import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import penstock.core.Feature;
import penstock.core.Point;
import penstock.core.ReflectedField;

/**
 * The instrumented methods of a NodeManager. Since Hadoop 3.4 its ShuffleHandler uses netty 4, and before that netty 3,
 * with other classes.
 */
public final class NodeManagerPoints {
    public static final String SHUFFLE = "org.apache.hadoop.mapred.";
    static final String REGION = SHUFFLE + "FadvisedFileRegion";
    static final String FILE = SHUFFLE + "FadvisedChunkedFile";
    private static final ReflectedField[] FIELDS = {
        new ReflectedField(REGION, "identifier", "Ljava/lang/String;"),
        new ReflectedField(REGION, "fileChannel", "Ljava/nio/channels/FileChannel;"),
        new ReflectedField(REGION, "fd", "Ljava/io/FileDescriptor;"),
        new ReflectedField(REGION, "shuffleTransferToAllowed", "Z"),
        new ReflectedField(FILE, "identifier", "Ljava/lang/String;")
    };

    /** The allow-list, and the fields that {@link MapOutput} reads from objects of other classes. */
    public static final List<Feature> ALL = Collections.unmodifiableList(Arrays.asList(
            new Feature("local directories",
                    new Point(SHUFFLE + "ShuffleHandler", "serviceInit", "(Lorg/apache/hadoop/conf/Configuration;)V",
                            ShuffleAdvice.Serve.class)),
            new Feature("map outputs",
                    new Point(SHUFFLE + "ShuffleChannelInitializer", "initChannel",
                            "(Lio/netty/channel/socket/SocketChannel;)V", ShuffleAdvice.Connect.class))
                    .reading(FIELDS),
            new Feature("map outputs", // before 3.4
                    new Point(SHUFFLE + "ShuffleHandler$HttpPipelineFactory", "getPipeline",
                            "()Lorg/jboss/netty/channel/ChannelPipeline;", OldShuffleAdvice.Connect.class))
                    .reading(FIELDS)));

    private NodeManagerPoints() { }
}
