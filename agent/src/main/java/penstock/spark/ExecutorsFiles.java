package penstock.spark;

import io.netty.channel.Channel;
import java.io.File;
import penstock.core.Peer;

/** The files that an executor sends to others of its application. */
public final class ExecutorsFiles extends Served {
    private static final ExecutorsFiles ALL = new ExecutorsFiles();

    private ExecutorsFiles() { }

    public static Served all() {
        return ALL;
    }

    @Override
    File governed(File file) {
        return LocalFiles.governed(file);
    }

    @Override
    String flow(File governed) {
        return LocalFiles.flow();
    }

    /** All streams of an executor belong to its application; the receiver does not matter. */
    @Override
    Peer peer(Channel channel) {
        return Peer.UNKNOWN;
    }
}
