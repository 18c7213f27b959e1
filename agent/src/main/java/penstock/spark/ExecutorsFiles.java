package penstock.spark;

import io.netty.channel.Channel;
import io.netty.channel.socket.SocketChannel;
import java.io.File;
import penstock.core.Peer;

/** The files that an executor sends to others of its application. */
public final class ExecutorsFiles implements Served {
    private static final ExecutorsFiles ALL = new ExecutorsFiles();

    private ExecutorsFiles() { }

    /** Adds the handler to a connection of the executor. */
    public static void into(SocketChannel channel) {
        Sending.into(channel, ALL);
    }

    static Sending handler() {
        return new Sending(ALL);
    }

    @Override
    public File governed(File file) {
        return LocalFiles.governed(file);
    }

    @Override
    public String flow(File governed) {
        return LocalFiles.flow();
    }

    @Override
    public Peer peer(Channel channel) {
        return Peer.UNKNOWN;
    }
}
