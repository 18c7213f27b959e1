package penstock.core;

import java.io.IOException;

/**
 * The exception of an operation that the daemon refuses before any data is moved. A DataNode with too many threads
 * refuses operations in the same way, and the client tries another replica, or the same one later. The exception has no
 * stack trace, because Hadoop logs it and there may be many.
 */
public final class Refusal extends IOException {
    private static final long serialVersionUID = 1;

    Refusal(String flow) {
        super("Penstock: " + flow + " has as many operations waiting on this DataNode as one application may have;"
                + " try another replica, or later");
    }

    @Override
    public synchronized Throwable fillInStackTrace() {
        return this;
    }
}
