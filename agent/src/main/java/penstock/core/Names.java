package penstock.core;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Maps the names of HDFS's clients and of containers to names of flows.
 *
 * <p>A DFS client has the name {@code DFSClient_<task attempt>_<random>_<thread>}, or {@code
 * DFSClient_NONMAPREDUCE_...} outside a MapReduce task. An attempt id contains its job's number, which is also the
 * application's number. Only an attempt id with a time stamp of 13 digits (the ResourceManager's, in milliseconds,
 * until the year 2286) names an application. A Spark executor that writes first has the name {@code attempt_<date of 14
 * or more digits>_...}, which is not an application; in the flow {@code clients}, a whole executor's I/O would count as
 * a shell's. So its flow is {@code unattributed}, like every name that cannot be parsed. A name that the operator of a
 * service has chosen, such as {@code hb_rs_...}, is passed on as {@code client:hb_rs_...}: the daemon's rules may name
 * the service, and without a rule the flow is {@code unattributed}. A client of Penstock's own
 * file system for Spark is named after its application, {@code DFSClient_attempt_<time>_<number>_spark_...} on YARN and
 * {@code DFSClient_app-<date>-<number>_...} on a standalone cluster, {@code DFSClient_spark-<digits>_...} on
 * Kubernetes.
 *
 * <p>The name is the client's claim, which the daemon verifies.
 */
public final class Names {
    /** The system property that names an executor's application without YARN. */
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
    /** Precedes a client's own name. The daemon has the same constant. */
    private static final String OWN_NAME = "client:";
    /** A client's own name. HDFS appends two numbers, which differ for each client and thread. */
    private static final Pattern OWN_NAME_CLIENT =
            Pattern.compile("DFSClient_([!-~]{1,100})_-?[0-9]{1,20}_[0-9]{1,20}");
    private static final int STAMP_DIGITS = 13;
    /**
     * An id of Spark without YARN. A standalone master's: the date to the second, in 14 digits, and a number of four or
     * more. On Kubernetes: 32 hexadecimal digits, or in old versions the time in milliseconds. On Mesos: the
     * framework's id, which is the master's UUID and a number; if Spark's dispatcher has started the driver, followed by
     * the driver's id.
     */
    private static final Pattern ID = Pattern.compile(
            "app-[0-9]{14}-[0-9]{4,10}|spark-[0-9a-f]{32}|spark-application-[0-9]{13}"
            + "|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9]{4,10}"
            + "(?:-driver-[0-9]{14}-[0-9]{4,10}(?:-retry-[0-9]{1,10})?)?");
    private static final Pattern ID_CLIENT = Pattern.compile("DFSClient_(" + ID + ")_-?[0-9]{1,20}_.*");
    private static final Pattern CONTAINER =
            Pattern.compile("container_(?:e[0-9]{2,9}_)?([0-9]{13}_[0-9]{4,10})_[0-9]{2,10}_[0-9]{6,12}");

    private Names() { }

    /** The flow of a read. Only a DataNode that reconstructs a striped block reads without a name. */
    static String ofRead(String name) {
        return name != null && name.isEmpty() ? RECONSTRUCTION : ofClient(name);
    }

    /** The flow of a client's operation. */
    static String ofClient(String name) {
        if (name == null) {
            return UNATTRIBUTED;
        }
        if (name.startsWith(CLIENT)) {
            return CLIENTS;
        }
        if (!name.startsWith(ATTEMPT)) {
            Matcher client = ID_CLIENT.matcher(name);
            return client.matches() ? client.group(1) : ofOwnName(name);
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

    /** Returns the claim of a client with a name of its own, if the name is not too long for a claim. */
    private static String ofOwnName(String name) {
        Matcher client = OWN_NAME_CLIENT.matcher(name);
        return client.matches() ? OWN_NAME + client.group(1) : UNATTRIBUTED;
    }

    /** The flow of a write or a transfer. An operation between DataNodes has no client name. */
    static String ofPipeline(String name, boolean reconstructs) {
        return name == null || !name.isEmpty() ? ofClient(name) : reconstructs ? RECONSTRUCTION : REPLICATION;
    }

    /**
     * Returns the application of a YARN container, {@code container_[e<epoch>_]<time>_<number>_...}. YARN sets this
     * name in the container's environment. Null if the name is not a container's.
     */
    public static String ofContainer(String name) {
        Matcher m = name == null ? null : CONTAINER.matcher(name);
        return m != null && m.matches() ? APPLICATION + m.group(1) : null;
    }

    /**
     * Returns the application of a whole process: its container's, or else the id by which Spark replaced {@code
     * {{APP_ID}}} in its Java options; null if neither names an application.
     *
     * @param container the environment's CONTAINER_ID, or null
     * @param application the system property penstock.application, or null
     */
    public static String ofProcess(String container, String application) {
        String flow = ofContainer(container);
        return flow != null || application == null || !ID.matcher(application).matches() ? flow : application;
    }

    /**
     * Returns the task id that a DFS client's name must contain so that {@link #ofClient} returns the given flow for
     * it.
     *
     * @param flow as returned by {@link #ofProcess}
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
