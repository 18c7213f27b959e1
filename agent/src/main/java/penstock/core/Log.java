package penstock.core;

import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/**
 * The log of this process, which receives only a few lines. An agent starts before its host's logging and writes to
 * standard error, which is the Hadoop daemon's .out file; a plug-in sets its host's logger.
 */
public final class Log {
    /**
     * Null means standard error. There is no lambda that writes to it, because the first lambda in a JVM would delay
     * the start of a task.
     */
    private static volatile Consumer<String> to;

    private Log() { }

    public static void to(Consumer<String> sink) {
        to = sink;
    }

    /** Logs one line. Never throws. */
    public static void say(String message) {
        try {
            Consumer<String> sink = to;
            if (sink == null) {
                System.err.println("penstock-agent: " + message);
            } else {
                sink.accept(message);
            }
        } catch (Throwable t) {
            // A failing logger must not affect its host.
        }
    }

    /**
     * Log lines of a repeated failure: each line is logged once and then only counted, until the failure is over. Other
     * threads may read only the count.
     */
    static final class Once {
        /**
         * The most different lines that are remembered. Reasons may contain numbers, so there may be many different
         * lines.
         */
        static final int MAX_LINES = 8;
        private final Set<String> said = new HashSet<>();
        private final AtomicLong count = new AtomicLong();

        /** Reports whether the line was logged. */
        public boolean say(String line) {
            count.incrementAndGet();
            if (said.size() >= MAX_LINES || !said.add(line)) {
                return false;
            }
            Log.say(line);
            return true;
        }

        /** How often the failure occurred, logged or not. */
        long count() {
            return count.get();
        }

        /** Reports whether lines have been logged since the last call of forget, and are therefore suppressed. */
        boolean isQuiet() {
            return !said.isEmpty();
        }

        /** Records that the failure is over: the next line is logged again. */
        void forget() {
            said.clear();
        }
    }
}
