package penstock.core;

import java.io.IOException;

/** Why nothing is sent to the daemon's loopback port; the message is for the operator. */
final class Untrusted extends IOException {
    private static final long serialVersionUID = 1;

    Untrusted(String message) {
        super(message);
    }

    @Override
    public String toString() {
        return getMessage();
    }
}
