package penstock.core;

import java.io.IOException;

/**
 * What an operation ends with that the daemon refuses before any data is moved, as a
 * DataNode with too many threads refuses it: its client goes to another replica, or comes
 * again later. It has no stack trace, as Hadoop logs it and there may be many.
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
