package penstock.spark;

import io.netty.channel.Channel;
import java.io.File;
import penstock.core.Peer;

/** The files that a process sends to executors. */
public abstract class Served {
    /** Returns the file's canonical path, without links, if it is governed; else null. */
    abstract File governed(File file);

    /** Returns the flow to which a governed file belongs. */
    abstract String flow(File governed);

    /** Returns the evidence about the receiver: the ends of the connection. */
    Peer peer(Channel channel) {
        return Peer.of(String.valueOf(channel.remoteAddress()), String.valueOf(channel.localAddress()), "");
    }
}
