package penstock.core;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Maps what HDFS knows about an operation's origin to the name of a flow.
 *
 * <p>A DFS client calls itself {@code DFSClient_<task attempt>_<random>_<thread>},
 * or {@code DFSClient_NONMAPREDUCE_...} outside a MapReduce task. An attempt id
 * names its job, and the job's number is the application's. Only a time stamp of
 * 13 digits (the ResourceManager's, in milliseconds, until the year 2286) makes
 * it one: a Spark executor that writes first calls itself
 * {@code attempt_<date of 14 or more digits>_...}, which is no application, and
 * calling it {@code clients} would put a whole executor's I/O among the shells.
 * It is {@code unattributed}, as is every name that cannot be read. A client that is made
 * by Penstock's own file system for Spark calls itself by its application,
 * {@code DFSClient_attempt_<time>_<number>_spark_...} on YARN and
 * {@code DFSClient_app-<date>-<number>_...} on a standalone cluster.
 *
 * <p>The name is the client's claim; who may claim what is the daemon's to judge.
 */
public final class Names {
    /** The system property that names an executor's application where there is no YARN. */
    public static final String APPLICATION_PROPERTY = "penstock.application";

    static final String CLIENTS = "clients";
    static final String REPLICATION = "replication";
    static final String BALANCER = "balancer";
    static final String SCANNER = "scanner";
    static final String RECONSTRUCTION = "reconstruction";
    public static final String UNATTRIBUTED = "unattributed";

    private static final String APPLICATION = "application_";
    private static final String ATTEMPT = "DFSClient_attempt_";
    private static final String CLIENT = "DFSClient_NONMAPREDUCE_";
    private static final int STAMP_DIGITS = 13;
    /** A standalone master's id: the date to the second, in 14 digits, and a number of four or more. */
    private static final Pattern STANDALONE = Pattern.compile("app-[0-9]{14}-[0-9]{4,10}");
    private static final Pattern STANDALONE_CLIENT = Pattern.compile("DFSClient_(" + STANDALONE + ")_-?[0-9]{1,20}_.*");
    private static final Pattern CONTAINER =
            Pattern.compile("container_(?:e[0-9]{2,9}_)?([0-9]{13}_[0-9]{4,10})_[0-9]{2,10}_[0-9]{6,12}");

    private Names() { }

    /** The flow of a read. Only a DataNode that reconstructs a striped block reads without a name. */
    static String ofRead(String name) {
        return name != null && name.isEmpty() ? RECONSTRUCTION : ofClient(name);
    }

    /** The flow of what a client asks for. */
    static String ofClient(String name) {
        if (name == null) {
            return UNATTRIBUTED;
        }
        if (name.startsWith(CLIENT)) {
            return CLIENTS;
        }
        if (!name.startsWith(ATTEMPT)) {
            Matcher standalone = STANDALONE_CLIENT.matcher(name);
            return standalone.matches() ? standalone.group(1) : UNATTRIBUTED;
        }
        int stamp = ATTEMPT.length();
        int stampEnd = digitsEnd(name, stamp);
        int number = stampEnd + 1;
        int numberEnd = digitsEnd(name, number);
        if (stampEnd - stamp != STAMP_DIGITS || !separated(name, stampEnd)
                || numberEnd - number < 4 || numberEnd - number > 10 || !separated(name, numberEnd)) {
            return UNATTRIBUTED;
        }
        return APPLICATION + name.substring(stamp, numberEnd);
    }

    /** The flow of a write or a transfer, which has no client name between DataNodes. */
    static String ofPipeline(String name, boolean reconstructs) {
        return name == null || !name.isEmpty() ? ofClient(name) : reconstructs ? RECONSTRUCTION : REPLICATION;
    }

    /**
     * The application of a YARN container, {@code container_[e<epoch>_]<time>_<number>_...},
     * whose name YARN puts into the container's environment; null if this is none.
     */
    public static String ofContainer(String name) {
        Matcher m = name == null ? null : CONTAINER.matcher(name);
        return m != null && m.matches() ? APPLICATION + m.group(1) : null;
    }

    /**
     * The application that a whole process works for: its container's, or else what Spark
     * put for {@code {{APP_ID}}} in its Java options; null if neither names one.
     *
     * @param container the environment's CONTAINER_ID, or null
     * @param application the system property penstock.application, or null
     */
    public static String ofProcess(String container, String application) {
        String flow = ofContainer(container);
        return flow != null || application == null || !STANDALONE.matcher(application).matches() ? flow : application;
    }

    /**
     * What a DFS client has to give as its task for {@link #ofClient} to see the flow again.
     *
     * @param flow as {@link #ofProcess} gives it
     */
    public static String taskOf(String flow) {
        return flow.startsWith(APPLICATION) ? "attempt_" + flow.substring(APPLICATION.length()) + "_spark" : flow;
    }

    private static int digitsEnd(String s, int from) {
        int i = from;
        while (i < s.length() && s.charAt(i) >= '0' && s.charAt(i) <= '9') {
            i++;
        }
        return i;
    }

    private static boolean separated(String s, int at) {
        return at < s.length() && s.charAt(at) == '_';
    }
}
