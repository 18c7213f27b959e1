package penstock.agent;

import java.util.function.Consumer;

/**
 * Where the few lines go that this process may say. An agent starts before its
 * host's logging and writes to standard error, the daemon's .out file; a plug-in
 * gives its host's logger.
 */
final class Log {
    /** Null for standard error. A task starts before its first lambda is cheap, so there is none here. */
    private static volatile Consumer<String> to;

    private Log() { }

    static void to(Consumer<String> sink) {
        to = sink;
    }

    /** One line. Never throws. */
    static void say(String message) {
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
}
