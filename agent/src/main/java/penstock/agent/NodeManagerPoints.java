package penstock.agent;

import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import penstock.agent.Weaver.Field;
import penstock.agent.Weaver.Point;

/**
 * Where a NodeManager is woven: Hadoop 3.4 and later, whose ShuffleHandler stands on
 * netty 4. Before that it has none of these classes, and the agent stays out.
 */
final class NodeManagerPoints {
    static final String SHUFFLE = "org.apache.hadoop.mapred.";

    /** The allow-list. */
    static final List<Point> ALL = Collections.unmodifiableList(Arrays.asList(
            new Point(SHUFFLE + "ShuffleHandler", "serviceInit", "(Lorg/apache/hadoop/conf/Configuration;)V",
                    ShuffleAdvice.Serve.class),
            new Point(SHUFFLE + "ShuffleChannelInitializer", "initChannel",
                    "(Lio/netty/channel/socket/SocketChannel;)V", ShuffleAdvice.Connect.class)));

    /** What {@link MapOutput} reads of objects whose class is not woven. */
    static final List<Field> FIELDS = Collections.unmodifiableList(Arrays.asList(
            new Field(SHUFFLE + "FadvisedFileRegion", "identifier", "Ljava/lang/String;"),
            new Field(SHUFFLE + "FadvisedFileRegion", "fileChannel", "Ljava/nio/channels/FileChannel;"),
            new Field(SHUFFLE + "FadvisedFileRegion", "fd", "Ljava/io/FileDescriptor;"),
            new Field(SHUFFLE + "FadvisedFileRegion", "shuffleTransferToAllowed", "Z"),
            new Field(SHUFFLE + "FadvisedChunkedFile", "identifier", "Ljava/lang/String;")));

    private NodeManagerPoints() { }
}
