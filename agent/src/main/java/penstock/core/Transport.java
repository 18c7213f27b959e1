package penstock.core;

import java.io.IOException;
import java.nio.channels.SocketChannel;

/**
 * How the client reaches the daemon: by its Unix socket or, on a JVM without Unix sockets, by its loopback port. Only
 * the client's thread calls {@link #connect} and {@link #reaches}.
 */
public interface Transport {
    /** Names a plug-in's transport in the options of its JVM, for tests: {@code unix} or {@code loopback}. */
    String PROPERTY = "penstock.transport";

    /**
     * Returns the named transport, or the best one that this JVM has.
     *
     * @param name may be null
     * @throws UnsupportedOperationException if this JVM lacks it
     * @throws IllegalArgumentException if there is no transport of that name
     */
    static Transport named(String name) {
        return named(name, UnixSockets.ADDRESSES);
    }

    /** @param unixAddresses name of the class of Unix sockets' addresses; tests have none */
    static Transport named(String name, String unixAddresses) {
        if ("loopback".equals(name)) {
            return new Loopback();
        }
        if (name != null && !name.equals("unix")) {
            throw new IllegalArgumentException("transport " + name + ": use unix or loopback");
        }
        try {
            return UnixSockets.find(unixAddresses);
        } catch (UnsupportedOperationException e) {
            if (name != null) {
                throw e;
            }
            return new Loopback();
        }
    }

    /** Starts to connect to the daemon that has the Unix socket, without waiting for the daemon. */
    SocketChannel connect(String socket) throws IOException;

    /**
     * Returns whether the connected channel leads to the daemon. If it returns false, this is not known yet, and
     * nothing may be sent or read; the caller asks again later.
     *
     * @throws IOException if it leads to somebody else, or to nobody
     */
    boolean reaches(SocketChannel channel) throws IOException;

    /** Returns why the daemon that has the Unix socket cannot be reached in this way until it is restarted, or null. */
    String obstacle(String socket);

    /** Returns a few words for the log, beginning with a space, or an empty string. */
    String way();
}
