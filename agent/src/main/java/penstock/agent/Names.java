package penstock.agent;

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
 * It is {@code unattributed}, as is every name that cannot be read.
 *
 * <p>The name is the client's claim; who may claim what is the daemon's to judge.
 */
final class Names {
    static final String CLIENTS = "clients";
    static final String REPLICATION = "replication";
    static final String BALANCER = "balancer";
    static final String SCANNER = "scanner";
    static final String UNATTRIBUTED = "unattributed";

    private static final String ATTEMPT = "DFSClient_attempt_";
    private static final String CLIENT = "DFSClient_NONMAPREDUCE_";
    private static final int STAMP_DIGITS = 13;

    private Names() { }

    /** The flow of a read: a DataNode never reads from another in this way. */
    static String ofClient(String name) {
        if (name == null) {
            return UNATTRIBUTED;
        }
        if (name.startsWith(CLIENT)) {
            return CLIENTS;
        }
        if (!name.startsWith(ATTEMPT)) {
            return UNATTRIBUTED;
        }
        int stamp = ATTEMPT.length();
        int stampEnd = digitsEnd(name, stamp);
        int number = stampEnd + 1;
        int numberEnd = digitsEnd(name, number);
        if (stampEnd - stamp != STAMP_DIGITS || !separated(name, stampEnd)
                || numberEnd - number < 4 || numberEnd - number > 10 || !separated(name, numberEnd)) {
            return UNATTRIBUTED;
        }
        return "application_" + name.substring(stamp, numberEnd);
    }

    /** The flow of a write or a transfer, which has no client name between DataNodes. */
    static String ofPipeline(String name) {
        return name != null && name.isEmpty() ? REPLICATION : ofClient(name);
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
