package penstock.shuffle;

import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import penstock.core.Feature;
import penstock.core.Point;
import penstock.core.ReflectedField;

/**
 * The instrumented methods of a NodeManager, in Hadoop 3.4 and later, where the ShuffleHandler uses netty 4. Earlier
 * versions have none of these classes, and the agent does nothing there.
 */
public final class NodeManagerPoints {
    public static final String SHUFFLE = "org.apache.hadoop.mapred.";

    /** The allow-list, and the fields that {@link MapOutput} reads from objects of other classes. */
    public static final List<Feature> ALL = Collections.unmodifiableList(Arrays.asList(
            new Feature("local directories",
                    new Point(SHUFFLE + "ShuffleHandler", "serviceInit", "(Lorg/apache/hadoop/conf/Configuration;)V",
                            ShuffleAdvice.Serve.class)),
            new Feature("map outputs",
                    new Point(SHUFFLE + "ShuffleChannelInitializer", "initChannel",
                            "(Lio/netty/channel/socket/SocketChannel;)V", ShuffleAdvice.Connect.class)).reading(
                    new ReflectedField(SHUFFLE + "FadvisedFileRegion", "identifier", "Ljava/lang/String;"),
                    new ReflectedField(SHUFFLE + "FadvisedFileRegion", "fileChannel",
                            "Ljava/nio/channels/FileChannel;"),
                    new ReflectedField(SHUFFLE + "FadvisedFileRegion", "fd", "Ljava/io/FileDescriptor;"),
                    new ReflectedField(SHUFFLE + "FadvisedFileRegion", "shuffleTransferToAllowed", "Z"),
                    new ReflectedField(SHUFFLE + "FadvisedChunkedFile", "identifier", "Ljava/lang/String;"))));

    private NodeManagerPoints() { }
}
