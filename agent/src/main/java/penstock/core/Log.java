package penstock.core;

import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/**
 * Where the few lines go that this process may say. An agent starts before its
 * host's logging and writes to standard error, the daemon's .out file; a plug-in
 * gives its host's logger.
 */
public final class Log {
    /** Null for standard error. A task starts before its first lambda is cheap, so there is none here. */
    private static volatile Consumer<String> to;

    private Log() { }

    public static void to(Consumer<String> sink) {
        to = sink;
    }

    /** One line. Never throws. */
    public static void say(String message) {
        try {
            Consumer<String> sink = to;
            if (sink == null) {
                System.err.println("penstock-agent: " + message);
            } else {
                sink.accept(message);
            }
        } catch (Throwable t) {
            // A logger that fails must not fail its host.
        }
    }

    /**
     * What may come back for ever: each line is said once and then only counted, until it
     * is over for good. Only the count may be read by other threads.
     */
    static final class Once {
        /** Different lines; a reason may have a number in it. */
        static final int MAX_LINES = 8;
        private final Set<String> said = new HashSet<>();
        private final AtomicLong count = new AtomicLong();

        /** Returns whether it was said. */
        public boolean say(String line) {
            count.incrementAndGet();
            if (said.size() >= MAX_LINES || !said.add(line)) {
                return false;
            }
            Log.say(line);
            return true;
        }

        /** How often it came, said or not. */
        long count() {
            return count.get();
        }

        /** Whether the next line has been said already, or may have been. */
        boolean isQuiet() {
            return !said.isEmpty();
        }

        /** It is over: the next one is said again. */
        void forget() {
            said.clear();
        }
    }
}
