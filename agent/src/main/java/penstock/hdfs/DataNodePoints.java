package penstock.hdfs;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import penstock.core.Feature;
import penstock.core.Point;

/** The instrumented methods of a DataNode; docs/design/agent.md explains the choice. */
public final class DataNodePoints {
    private static final String DN = "org.apache.hadoop.hdfs.server.datanode.";
    private static final String XCEIVER = DN + "DataXceiver";
    private static final String SENDER = DN + "BlockSender";
    private static final String RECEIVER = DN + "BlockReceiver";
    private static final String BLOCK = "(Lorg/apache/hadoop/hdfs/protocol/ExtendedBlock;";
    private static final String TOKEN = "Lorg/apache/hadoop/security/token/Token;";
    private static final String STORAGE = "Lorg/apache/hadoop/fs/StorageType;";
    private static final String NODE = "Lorg/apache/hadoop/hdfs/protocol/DatanodeInfo;";
    private static final String STAGE = "Lorg/apache/hadoop/hdfs/protocol/datatransfer/BlockConstructionStage;";
    private static final String CHECKSUM = "Lorg/apache/hadoop/util/DataChecksum;";
    private static final String CACHING = "Lorg/apache/hadoop/hdfs/server/datanode/CachingStrategy;";
    private static final String DATANODE = "Lorg/apache/hadoop/hdfs/server/datanode/DataNode;";
    private static final String STRING = "Ljava/lang/String;";

    /** The allow-list. */
    public static final List<Feature> ALL = Collections.unmodifiableList(Arrays.asList(
            new Feature("data directories",
                    new Point(DN + "DataNode", "runDatanodeDaemon", "()V", NodeAdvice.class)),
            new Feature("volumes that are added or removed",
                    new Point(DN + "DataNode", "refreshVolumes", "(" + STRING + ")V", VolumeAdvice.Refresh.class),
                    new Point(DN + "DataNode", "handleVolumeFailures", "(Ljava/util/Set;)V",
                            VolumeAdvice.Fail.class)),
            new Feature("reads",
                    new Point(XCEIVER, "readBlock", BLOCK + TOKEN + STRING + "JJZ" + CACHING + ")V",
                            NameAdvice.Read.class),
                    new Point(SENDER, "<init>",
                            BLOCK + "JJZZZ" + DATANODE + STRING + CACHING + ")V", ReadAdvice.Construct.class),
                    new Point(SENDER, "sendPacket", "(Ljava/nio/ByteBuffer;ILjava/io/OutputStream;Z"
                            + "Lorg/apache/hadoop/hdfs/util/DataTransferThrottler;)I", ReadAdvice.Send.class),
                    new Point(SENDER, "close", "()V", ReadAdvice.Close.class)),
            new Feature("writes",
                    new Point(XCEIVER, "writeBlock",
                            BLOCK + STORAGE + TOKEN + STRING + "[" + NODE + "[" + STORAGE + NODE + STAGE + "IJJJ"
                                    + CHECKSUM + CACHING + "ZZ[Z" + STRING + "[" + STRING + ")V",
                            NameAdvice.Write.class),
                    new Point(RECEIVER, "<init>",
                            BLOCK + STORAGE + "Ljava/io/DataInputStream;" + STRING + STRING + STAGE + "JJJ" + STRING
                                    + NODE + DATANODE + CHECKSUM + CACHING + "ZZ" + STRING + ")V",
                            WriteAdvice.Construct.class),
                    new Point(RECEIVER, "receivePacket", "()I", WriteAdvice.Receive.class),
                    new Point(RECEIVER, "close", "()V", WriteAdvice.Close.class),
                    new Point("org.apache.hadoop.hdfs.protocol.datatransfer.PacketReceiver", "receiveNextPacket",
                            "(Ljava/io/InputStream;)V", WriteAdvice.Packet.class)),
            new Feature("names of copies between DataNodes",
                    new Point(XCEIVER, "transferBlock",
                            BLOCK + TOKEN + STRING + "[" + NODE + "[" + STORAGE + "[" + STRING + ")V",
                            NameAdvice.Transfer.class),
                    new Point(DN + "DataNode$DataTransfer", "run", "()V", NameAdvice.ClientField.class)),
            new Feature("names of the balancer's moves",
                    new Point(XCEIVER, "copyBlock", BLOCK + TOKEN + ")V", NameAdvice.Copy.class),
                    new Point(XCEIVER, "replaceBlock", BLOCK + STORAGE + TOKEN + STRING + NODE + STRING + ")V",
                            NameAdvice.Replace.class)),
            new Feature("names of scans",
                    new Point(DN + "VolumeScanner", "scanBlock", BLOCK + "J)J", NameAdvice.Scanner.class))));

    /** The types to which a field for the stream is added. */
    public static final Set<String> CARRIERS =
            Collections.unmodifiableSet(new HashSet<>(Arrays.asList(SENDER, RECEIVER)));

    private DataNodePoints() { }
}
