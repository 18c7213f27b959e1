package penstock.spark;

import io.netty.channel.Channel;
import java.io.File;
import penstock.core.Peer;

/** The files that a process sends to executors. */
interface Served {
    /** Returns the file's canonical path, without links, if it is governed; else null. */
    File governed(File file);

    /** Returns the flow to which a governed file belongs. */
    String flow(File governed);

    /** Returns the evidence about the receiver at the other end. */
    Peer peer(Channel channel);
}
