package penstock.core;

/**
 * One operation of the DataNode in its thread: what its I/O is called, and the
 * streams that are on their way from one woven method to the next. Everything
 * that an operation does with block data happens in its own thread, so no field
 * needs to be shared.
 */
public final class Op {
    final String flow;
    final Peer peer;
    final Op outer;
    /** Opened by a constructor that has not returned yet; a throw leaves it here. */
    Stream pending;
    /** The write whose packet this thread is receiving. */
    Stream writing;
    /** Another DataNode reads a striped block's rest, and gives up sooner than a client. */
    final boolean reconstructs;
    /** A client reads a block, and has others to read from. */
    final boolean refusable;

    Op(String flow, Peer peer, boolean reconstructs, boolean refusable, Op outer) {
        this.reconstructs = reconstructs;
        this.refusable = refusable;
        this.flow = flow;
        this.peer = peer;
        this.outer = outer;
    }
}
