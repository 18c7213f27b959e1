package penstock.core;

/** Gives tests of other packages access to the process's only connection. */
public final class TestGates {
    private TestGates() { }

    /** Ends the connection, as a JVM that exits does. */
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

    /** Once what is closed has been sent; the test's time limit is the only one. */
    public static int streamsOpenSoon() {
        while (streamsOpen() > 0) {
            Thread.onSpinWait();
        }
        return streamsOpen();
    }

    public static long waits() {
        return Gates.WAITS.sum();
    }

    /** Exceptions of ours that were kept from the host. */
    public static long failures() {
        return Gates.FAILURES.sum();
    }

    public static long backstops() {
        return Gates.BACKSTOPS.sum();
    }
}
