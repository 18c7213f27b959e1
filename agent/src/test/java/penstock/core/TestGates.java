package penstock.core;

/** Gives tests of other packages access to the process's only connection. */
public final class TestGates {
    private TestGates() { }

    /** Ends the connection, as at the exit of a JVM. */
    public static void reset() throws InterruptedException {
        Client client = Gates.installed();
        Gates.install(null);
        if (client != null) {
            client.stop();
        }
        Log.to(message -> System.err.println("penstock-agent: " + message));
    }

    public static boolean isEnforcing() {
        Client client = Gates.installed();
        return client != null && client.enforcing(System.nanoTime());
    }

    public static boolean isConnecting() {
        return Gates.installed() != null;
    }

    public static int streamsOpen() {
        return Gates.installed().streamsOpen();
    }

    /** Waits until the CLOSE of each closed stream has been sent. Only the test's time limit ends the wait. */
    public static int streamsOpenSoon() {
        while (streamsOpen() > 0) {
            Thread.onSpinWait();
        }
        return streamsOpen();
    }

    public static long waits() {
        return Gates.WAITS.sum();
    }

    /** Returns the number of Penstock's exceptions that were suppressed. */
    public static long failures() {
        return Gates.FAILURES.sum();
    }

    public static long backstops() {
        return Gates.BACKSTOPS.sum();
    }
}
