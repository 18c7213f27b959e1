package penstock.spark;

import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.ChannelPromise;
import io.netty.channel.socket.SocketChannel;
import java.io.File;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.spark.network.buffer.FileSegmentManagedBuffer;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.protocol.AbstractMessage;
import org.apache.spark.network.protocol.ChunkFetchSuccess;
import org.apache.spark.network.protocol.StreamFailure;
import org.apache.spark.network.protocol.StreamResponse;
import penstock.core.Gate;
import penstock.core.Gates;
import penstock.core.Peer;
import penstock.core.Stream;

/**
 * What an executor sends of its shuffle files to others. An event loop must not wait for
 * a disk's turn, and the bytes go from the page cache to the socket without passing
 * through this process; so a message with a part of a file is kept back here, in front
 * of the encoder, until that part is staged, and then leaves as it is. Others overtake it,
 * which Spark allows: a chunk's answer names its request. Answers to a stream's request do
 * not, and keep their order among themselves.
 *
 * <p>All of it runs on the connection's event loop; a mark's rising only puts a task there.
 */
public final class Sending extends ChannelOutboundHandlerAdapter {
    private static final String NAME = "penstock";
    /**
     * The longest that a connection is without a message because of us. Spark's other end closes a connection on which
     * nothing has arrived for 120 s (spark.network.timeout).
     */
    private static final long LONGEST_NANOS = TimeUnit.SECONDS.toNanos(30);
    /** Messages that one connection keeps back; further ones leave at once. */
    static final int MAX_HELD = 1024;
    /** Of them, those whose files are being staged: what is staged long before it is sent is only in the way. */
    static final int MAX_STAGING = 4;
    private static final int STEP = 64 << 10;

    /** In order, and only as long as the first of them is kept back. */
    private final Deque<Held> streams = new ArrayDeque<>();
    private final Set<Held> held = new LinkedHashSet<>();
    /** Those that have a file and wait for a place among the staged. */
    private final Deque<Held> waiting = new ArrayDeque<>();
    private int staging;
    private boolean admitting;
    /** When the last one left, in System.nanoTime(). */
    private long left = System.nanoTime();

    Sending() { }

    /** Adds itself behind the encoder of a plain connection. An encrypted one reads its files in other ways. */
    public static void into(SocketChannel channel) {
        ChannelPipeline pipeline = channel.pipeline();
        if (pipeline.get("encoder") != null && pipeline.get("chunkedWriter") == null && pipeline.get(NAME) == null) {
            pipeline.addAfter("encoder", NAME, new Sending());
        }
    }

    @Override
    public void write(ChannelHandlerContext ctx, Object message, ChannelPromise promise) throws Exception {
        Held kept = null;
        try {
            kept = keep(ctx, message, promise);
        } catch (Throwable t) {
            Gate.failed(t);
        }
        if (kept == null) {
            left = System.nanoTime();
            ctx.write(message, promise);
        } else {
            admit();
            kept.run();
        }
    }

    /** Has further files staged while there is room. */
    private void admit() {
        if (admitting) {
            return; // one that left at once: the loop below goes on
        }
        admitting = true;
        try {
            while (staging < MAX_STAGING && !waiting.isEmpty()) {
                Held next = waiting.poll();
                next.announce();
                next.run();
            }
        } finally {
            admitting = false;
        }
    }

    /** Null if it may go at once. */
    private Held keep(ChannelHandlerContext ctx, Object message, ChannelPromise promise) {
        boolean ordered = message instanceof StreamResponse || message instanceof StreamFailure;
        if (!ordered && !(message instanceof ChunkFetchSuccess)) {
            return null;
        }
        Held kept = new Held(ctx, message, promise, ordered);
        ManagedBuffer body = ((AbstractMessage) message).body();
        if (body instanceof FileSegmentManagedBuffer && held.size() < MAX_HELD) {
            FileSegmentManagedBuffer segment = (FileSegmentManagedBuffer) body;
            File file = segment.getLength() > 0 ? LocalFiles.governed(segment.getFile()) : null;
            kept.of(file, segment.getOffset(), segment.getOffset() + segment.getLength());
        }
        if (kept.file == null && !(ordered && !streams.isEmpty())) {
            return null;
        }
        if (kept.file != null) {
            if (held.isEmpty()) {
                left = System.nanoTime();
            }
            waiting.add(kept);
        }
        held.add(kept);
        if (ordered) {
            streams.add(kept);
        }
        return kept;
    }

    /** The connection has ended: whoever wrote hears of it from the encoder's side, which goes last. */
    @Override
    public void handlerRemoved(ChannelHandlerContext ctx) {
        streams.clear();
        waiting.clear();
        for (Held left : new ArrayList<>(held)) {
            Gate.close(left.stream, left.at, true);
            left.leave();
        }
    }

    /** A message that waits for its file, or for those before it. */
    private final class Held implements Runnable {
        private final ChannelHandlerContext ctx;
        private final Object message;
        private final ChannelPromise promise;
        private final boolean ordered;
        /** Null if it only waits for those before it. */
        private File file;
        private boolean announced;
        private Stream stream;
        private long at;
        private long to;
        private boolean staged;

        Held(ChannelHandlerContext ctx, Object message, ChannelPromise promise, boolean ordered) {
            this.ctx = ctx;
            this.message = message;
            this.promise = promise;
            this.ordered = ordered;
        }

        void of(File whose, long from, long end) {
            file = whose;
            at = from;
            to = end;
        }

        void announce() {
            announced = true;
            staging++;
            try {
                stream = Gates.open(false, Gates.INTERMEDIATE, LocalFiles.flow(), file, Peer.UNKNOWN, at, to,
                        () -> ctx.executor().execute(this));
            } catch (Throwable t) {
                Gate.failed(t);
            }
        }

        /** Asks for as much as is staged, and lets go what need not wait. On the event loop. */
        @Override
        public void run() {
            if (!held.contains(this) || staged) {
                return;
            }
            try {
                staged = file == null || announced && (stream == null || passed());
            } catch (Throwable t) {
                Gate.failed(t);
                staged = true;
            }
            if (!staged) {
                return;
            }
            Gate.close(stream, to, false);
            if (announced) {
                staging--;
            }
            if (!ordered) {
                leave();
            }
            while (!streams.isEmpty() && streams.peek().staged) {
                streams.poll().leave();
            }
            admit();
        }

        private boolean passed() {
            while (at < to && ctx.channel().isActive() && System.nanoTime() - left < LONGEST_NANOS) {
                long next = Math.min(at + STEP, to);
                if (!Gates.mayPass(stream, at, next)) {
                    return false;
                }
                at = next;
            }
            return true;
        }

        /** The flush that came with it may be long over. */
        private void leave() {
            held.remove(this);
            left = System.nanoTime();
            ctx.writeAndFlush(message, promise);
        }
    }
}
