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
 * classes of these sockets by name. On an older JVM {@link #find} throws an exception, and {@link Transport#named}
 * chooses a loopback connection.
 */
public final class UnixSockets implements Transport {
    static final String ADDRESSES = "java.net.UnixDomainSocketAddress";
    private final Method addressOf;
    private final Method open;
    private final ProtocolFamily unix;

    private UnixSockets(Method addressOf, Method open, ProtocolFamily unix) {
        this.addressOf = addressOf;
        this.open = open;
        this.unix = unix;
    }

    public static UnixSockets find() {
        return find(ADDRESSES);
    }

    /** @throws UnsupportedOperationException on a JVM without Unix sockets */
    public static UnixSockets find(String addressClass) {
        try {
            return new UnixSockets(Class.forName(addressClass).getMethod("of", String.class),
                    SocketChannel.class.getMethod("open", ProtocolFamily.class),
                    StandardProtocolFamily.valueOf("UNIX"));
        } catch (ReflectiveOperationException | IllegalArgumentException e) {
            throw new UnsupportedOperationException("this JVM (Java " + System.getProperty("java.version")
                    + ") has no Unix sockets: use Java 16 or later", e);
        }
    }

    @Override
    public SocketChannel connect(String path) throws IOException {
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

    /** The permissions of the socket's folder decide who may listen there. */
    @Override
    public boolean reaches(SocketChannel channel) {
        return true;
    }

    @Override
    public String obstacle(String path) {
        return null;
    }

    @Override
    public String way() {
        return "";
    }

    private static void close(SocketChannel channel) throws IOException {
        if (channel != null) {
            channel.close();
        }
    }
}
