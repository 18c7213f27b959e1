package penstock.sharedfs.turns;

import java.nio.file.Path;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import penstock.sharedfs.layout.Counts;
import penstock.sharedfs.layout.Locator;

/**
 * Takes turns for this process, which runs in a container of YARN. Safe for use by several threads. Nothing here throws,
 * and the daemon's client bounds each wait.
 */
public final class Turns {
    /** Setting: whether to take turns. */
    public static final String ENABLED = "penstock.sharedfs.turns";
    /** Setting: the maximum number of bytes of a turn, {@link #LEAST} to {@link #MOST}. */
    public static final String SIZE = "penstock.sharedfs.turn.bytes";
    /**
     * Setting: whether written bytes are on the server's disk when their turn ends. Otherwise a part of them is still in
     * page caches, and the kernel writes them beside the requests of other clients.
     */
    public static final String SYNC = "penstock.sharedfs.turn.sync";
    /** The largest value and the default of {@link #SIZE}. */
    static final int MOST = 1 << 20;
    /** Reads and writes of fewer bytes do not ask: the question would cost more than it is worth. */
    public static final int LEAST = 64 << 10;
    private static final Logger LOG = LoggerFactory.getLogger(Turns.class);

    /** Gives turns. */
    interface Daemon {
        /** Waits for a turn and returns it; null if there is no daemon to ask. */
        Held take(boolean write, String server, long bytes);
    }

    /** A read's or write's turn. */
    interface Held {
        /** Whether the daemon has given the turn. If not, the wait ended for another reason. */
        boolean isGiven();

        void end();
    }

    private final Daemon daemon;
    private final Locator locator;
    private final int most;
    private final boolean sync;

    /**
     * @param most the maximum number of bytes of a turn
     * @param sync whether written bytes are on the server's disk when their turn ends
     */
    Turns(Daemon daemon, Locator locator, int most, boolean sync) {
        this.daemon = daemon;
        this.locator = locator;
        this.most = most;
        this.sync = sync;
    }

    /**
     * Returns null if turns are not wanted, or not possible in this process.
     *
     * @param locator finds the servers; null without a layout
     */
    public static Turns find(Configuration conf, Map<String, String> environment, Locator locator, Path mount) {
        if (!conf.getBoolean(ENABLED, false) || locator == null) {
            return null;
        }
        int most = most(conf);
        try {
            Daemon daemon = AgentsDaemon.find(conf, environment, mount.toFile());
            return daemon == null ? null : new Turns(daemon, locator, most, conf.getBoolean(SYNC, true));
        } catch (LinkageError | RuntimeException e) {
            LOG.warn("no turns at storage servers: {}. They need penstock-agent.jar of the same release on the class"
                + " path", e.toString());
            return null;
        }
    }

    private static int most(Configuration conf) {
        long bytes = -1;
        try {
            bytes = conf.getLongBytes(SIZE, MOST);
        } catch (IllegalArgumentException e) {
            LOG.debug("{} cannot be read", SIZE, e);
        }
        if (bytes < LEAST || bytes > MOST) {
            LOG.warn("{} is {}: write a number of bytes from {} to {}, such as 256k; {} is used", SIZE, conf.get(SIZE),
                LEAST, MOST, MOST);
            return MOST;
        }
        return (int) bytes;
    }

    /** Returns the maximum number of bytes of a turn. */
    public int most() {
        return most;
    }

    boolean sync() {
        return sync;
    }

    /** Returns the finder of servers. */
    public Locator locator() {
        return locator;
    }

    /**
     * Waits for a turn.
     *
     * @param server null if it is not known
     */
    Turn take(boolean write, String server, long bytes) {
        Held held = null;
        try {
            held = server == null ? null : daemon.take(write, server, bytes);
        } catch (LinkageError | RuntimeException e) {
            LOG.debug("no turn", e);
        }
        boolean given = held != null && held.isGiven();
        (held == null ? Counts.THIS_JVM.turnsNotAsked : given ? Counts.THIS_JVM.turns
            : Counts.THIS_JVM.turnsPassed).increment();
        return new Turn(held, given);
    }

    /** The time of one read or write. Closing it lets the next one begin. */
    public static final class Turn implements AutoCloseable {
        static final Turn NONE = new Turn(null, false);
        private final Held held;
        private final boolean given;

        private Turn(Held held, boolean given) {
            this.held = held;
            this.given = given;
        }

        /** Reports whether the daemon has given the turn. Otherwise the read or write goes ahead without one. */
        public boolean isGiven() {
            return given;
        }

        @Override
        public void close() {
            if (held != null) {
                held.end();
            }
        }
    }
}
