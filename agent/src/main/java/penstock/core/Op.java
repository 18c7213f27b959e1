package penstock.core;

/**
 * One operation of the DataNode in its thread: the name of its flow, and the streams that one instrumented method
 * passes to the next. An operation handles block data only in its own thread, so no field is shared.
 */
public final class Op {
    final String flow;
    final Peer peer;
    final Op outer;
    /** Opened by a constructor that has not returned yet; it stays here if the constructor throws. */
    Stream pending;
    /** The write whose packet this thread is receiving. */
    Stream writing;
    /** Whether the reader is a DataNode that reconstructs a striped block; its time-out is shorter than a client's. */
    final boolean reconstructs;
    /**
     * Whether the daemon may refuse the operation, because it is a client's read: the client can use another replica.
     */
    final boolean refusable;

    Op(String flow, Peer peer, boolean reconstructs, boolean refusable, Op outer) {
        this.reconstructs = reconstructs;
        this.refusable = refusable;
        this.flow = flow;
        this.peer = peer;
        this.outer = outer;
    }
}
