package penstock.shuffle;

import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import penstock.core.ReflectedField;
import penstock.core.Point;

/**
 * The instrumented methods of a NodeManager, in Hadoop 3.4 and later, where the ShuffleHandler uses netty 4. Earlier
 * versions have none of these classes, and the agent does nothing there.
 */
public final class NodeManagerPoints {
    public static final String SHUFFLE = "org.apache.hadoop.mapred.";

    /** The allow-list. */
    public static final List<Point> ALL = Collections.unmodifiableList(Arrays.asList(
            new Point(SHUFFLE + "ShuffleHandler", "serviceInit", "(Lorg/apache/hadoop/conf/Configuration;)V",
                    ShuffleAdvice.Serve.class),
            new Point(SHUFFLE + "ShuffleChannelInitializer", "initChannel",
                    "(Lio/netty/channel/socket/SocketChannel;)V", ShuffleAdvice.Connect.class)));

    /** The fields that {@link MapOutput} reads from objects of classes that are not instrumented. */
    public static final List<ReflectedField> FIELDS = Collections.unmodifiableList(Arrays.asList(
            new ReflectedField(SHUFFLE + "FadvisedFileRegion", "identifier", "Ljava/lang/String;"),
            new ReflectedField(SHUFFLE + "FadvisedFileRegion", "fileChannel", "Ljava/nio/channels/FileChannel;"),
            new ReflectedField(SHUFFLE + "FadvisedFileRegion", "fd", "Ljava/io/FileDescriptor;"),
            new ReflectedField(SHUFFLE + "FadvisedFileRegion", "shuffleTransferToAllowed", "Z"),
            new ReflectedField(SHUFFLE + "FadvisedChunkedFile", "identifier", "Ljava/lang/String;")));

    private NodeManagerPoints() { }
}
