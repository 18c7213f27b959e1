package penstock.core;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.ProtocolFamily;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.nio.channels.SocketChannel;

/**
 * Unix stream sockets, which Java has had since version 16. This class is compiled for Java 8, and therefore loads the
 * classes of these sockets by name. On an older JVM {@link #find} throws an exception that explains why the agent
 * cannot run.
 */
public final class UnixSockets {
    private final Method addressOf;
    private final Method open;
    private final ProtocolFamily unix;

    private UnixSockets(Method addressOf, Method open, ProtocolFamily unix) {
        this.addressOf = addressOf;
        this.open = open;
        this.unix = unix;
    }

    public static UnixSockets find() {
        return find("java.net.UnixDomainSocketAddress");
    }

    /** @throws UnsupportedOperationException on a JVM without Unix sockets */
    public static UnixSockets find(String addressClass) {
        try {
            return new UnixSockets(Class.forName(addressClass).getMethod("of", String.class),
                    SocketChannel.class.getMethod("open", ProtocolFamily.class),
                    StandardProtocolFamily.valueOf("UNIX"));
        } catch (ReflectiveOperationException | IllegalArgumentException e) {
            throw new UnsupportedOperationException("this JVM (Java " + System.getProperty("java.version")
                    + ") has no Unix sockets; run the DataNode on Java 16 or later", e);
        }
    }

    /** Starts to connect without waiting, because a stopped daemon must not block the caller. */
    SocketChannel connect(String path) throws IOException {
        SocketChannel channel = null;
        try {
            channel = (SocketChannel) open.invoke(null, unix);
            channel.configureBlocking(false);
            channel.connect((SocketAddress) addressOf.invoke(null, path));
            return channel;
        } catch (IOException | RuntimeException e) {
            close(channel);
            throw e;
        } catch (InvocationTargetException e) {
            close(channel);
            throw new IOException(e.getCause());
        } catch (IllegalAccessException e) {
            close(channel);
            throw new IOException(e);
        }
    }

    private static void close(SocketChannel channel) throws IOException {
        if (channel != null) {
            channel.close();
        }
    }
}
