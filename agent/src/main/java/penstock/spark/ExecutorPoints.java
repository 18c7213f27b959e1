package penstock.spark;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import penstock.core.Feature;
import penstock.core.Point;
import penstock.core.ReflectedField;

/** The instrumented methods of a Spark executor; docs/design/spark.md explains the choice. */
public final class ExecutorPoints {
    private static final String SPARK = "org.apache.spark.";
    private static final String TRACKING = SPARK + "storage.TimeTrackingOutputStream";
    private static final String BUFFERED = SPARK + "io.NioBufferedFileInputStream";
    private static final String SEGMENT = SPARK + "network.buffer.FileSegmentManagedBuffer";
    private static final String BLOCK = SPARK + "storage.DiskBlockData";
    private static final String COLLECTION = SPARK + "util.collection.";
    private static final String SPILL = COLLECTION + "ExternalSorter$SpillReader";
    private static final String SPILLED_MAP = COLLECTION + "ExternalAppendOnlyMap$DiskMapIterator";
    static final String TRANSPORT = SPARK + "network.TransportContext";
    static final String CHANNEL =
            "(Lio/netty/channel/socket/SocketChannel;Lorg/apache/spark/network/server/RpcHandler;";
    static final String HANDLER = "Lorg/apache/spark/network/server/TransportChannelHandler;";
    private static final String COPY =
            "(Ljava/nio/channels/FileChannel;Ljava/nio/channels/WritableByteChannel;JJ)V";
    private static final String NEXT = "()Lorg/apache/spark/serializer/DeserializationStream;";

    /** The allow-list, and the field that the shuffle plug-in reads. */
    public static final List<Feature> ALL = Collections.unmodifiableList(Arrays.asList(
            new Feature("local directories",
                    new Point(SPARK + "storage.DiskBlockManager", "<init>", "(Lorg/apache/spark/SparkConf;ZZ)V",
                            SparkAdvice.Directories.class)),
            new Feature("writing of spills",
                    new Point(SPARK + "storage.DiskBlockObjectWriter", "initialize", "()V",
                            SparkAdvice.Opening.class),
                    new Point(TRACKING, "<init>",
                            "(Lorg/apache/spark/shuffle/ShuffleWriteMetricsReporter;Ljava/io/OutputStream;)V",
                            SparkAdvice.Opened.class),
                    new Point(TRACKING, "write", "(I)V", SparkAdvice.WriteOne.class),
                    new Point(TRACKING, "write", "([B)V", SparkAdvice.WriteAll.class),
                    new Point(TRACKING, "write", "([BII)V", SparkAdvice.Write.class),
                    new Point(TRACKING, "close", "()V", SparkAdvice.Close.class)),
            new Feature("reading of sorted spills",
                    new Point(BUFFERED, "<init>", "(Ljava/io/File;I)V", SparkAdvice.Reader.class),
                    new Point(BUFFERED, "refill", "()Z", SparkAdvice.Refill.class),
                    new Point(BUFFERED, "close", "()V", SparkAdvice.Close.class)),
            new Feature("reading of sorters' spills",
                    new Point(SPILL, "nextBatchStream", NEXT, SparkAdvice.Spilled.class)),
            new Feature("reading of maps' spills",
                    new Point(SPILLED_MAP, "nextBatchIterator", "()Lscala/collection/Iterator;",
                            SparkAdvice.SpilledMap.class)),
            new Feature("merging of spills",
                    new Point(SPARK + "util.SparkStreamUtils", "copyFileStreamNIO", COPY, SparkAdvice.Copy.class)),
            new Feature("merging of spills", // 3.5
                    new Point(SPARK + "util.Utils$", "copyFileStreamNIO", COPY, SparkAdvice.Copy.class)),
            new Feature("blocks read on this node",
                    new Point(SEGMENT, "createInputStream", "()Ljava/io/InputStream;", SparkAdvice.Segment.class),
                    new Point(SEGMENT, "nioByteBuffer", "()Ljava/nio/ByteBuffer;", SparkAdvice.SegmentWhole.class)),
            new Feature("blocks sent to other nodes",
                    new Point(TRANSPORT, "initializePipeline", CHANNEL + "Z)" + HANDLER, SparkAdvice.Pipeline.class)),
            new Feature("blocks sent to other nodes", // 3.5
                    new Point(TRANSPORT, "initializePipeline", CHANNEL + ")" + HANDLER, SparkAdvice.Pipeline.class)),
            new Feature("cached blocks on disk",
                    new Point(SPARK + "storage.DiskStore", "openForWrite",
                            "(Ljava/io/File;)Ljava/nio/channels/WritableByteChannel;", SparkAdvice.Stored.class),
                    new Point(BLOCK, "toInputStream", "()Ljava/io/InputStream;", SparkAdvice.Block.class),
                    new Point(BLOCK, "toChunkedByteBuffer",
                            "(Lscala/Function1;)Lorg/apache/spark/util/io/ChunkedByteBuffer;",
                            SparkAdvice.BlockWhole.class),
                    new Point(BLOCK, "toByteBuffer", "()Ljava/nio/ByteBuffer;", SparkAdvice.BlockWhole.class)),
            new Feature("map outputs").reading(new ReflectedField(
                    SPARK + "shuffle.sort.io.LocalDiskShuffleMapOutputWriter", "outputTempFile",
                    "Ljava/io/File;"))));

    /** The types to which weaving adds a field for the object's file. */
    public static final Set<String> CARRIERS = Collections.unmodifiableSet(
            new HashSet<>(Arrays.asList(TRACKING, BUFFERED, SPILL, SPILLED_MAP)));
    public static final String CARRIED = "penstock.spark.LocalFile";

    private ExecutorPoints() { }
}
