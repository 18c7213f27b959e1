package penstock.spark;

import io.netty.channel.Channel;
import io.netty.channel.socket.SocketChannel;
import java.io.File;
import java.io.IOException;
import penstock.core.Gate;
import penstock.core.LocalDirectories;
import penstock.core.Names;
import penstock.core.Peer;

/**
 * The files that Spark's shuffle service sends, for all applications of the node. A file belongs to the application in
 * whose directory it is. The application that a request names has registered the directory, and so could name another
 * application's; the path cannot be wrong about its owner. As with map outputs, the ends of the connection are
 * evidence.
 */
public final class ShuffleService implements Served {
    private static final ShuffleService ALL = new ShuffleService();

    private ShuffleService() { }

    /** Adds the handler to a connection of the service. */
    public static void into(SocketChannel channel) {
        Sending.into(channel, ALL);
    }

    static Sending handler() {
        return new Sending(ALL);
    }

    @Override
    public File governed(File file) {
        try {
            File canonical = file.getCanonicalFile();
            return flow(canonical).equals(Names.UNATTRIBUTED) ? null : canonical;
        } catch (IOException | RuntimeException e) {
            Gate.failed(e);
            return null;
        }
    }

    @Override
    public String flow(File governed) {
        return LocalDirectories.flow(governed.getPath());
    }

    @Override
    public Peer peer(Channel channel) {
        return Peer.of(String.valueOf(channel.remoteAddress()), String.valueOf(channel.localAddress()), "");
    }
}
