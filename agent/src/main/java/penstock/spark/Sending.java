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
import penstock.core.Stream;

/**
 * Holds back messages with parts of shuffle files that are sent to executors. An event loop must not wait for a
 * disk, and the bytes go from the page cache to the socket without passing through this process. So a message with a
 * part of a file is kept back here, in front of the encoder, until that part is staged, and then leaves unchanged.
 * Other messages may overtake it, because a chunk's answer names its request. Answers to stream requests keep their
 * order.
 *
 * <p>All of this runs on the connection's event loop; when a mark rises, only a task is queued there.
 */
public final class Sending extends ChannelOutboundHandlerAdapter {
    private static final String NAME = "penstock";
    /**
     * The longest time for which this handler may leave a connection without a message. Spark's other end closes a
     * connection on which nothing has arrived for 120 s (spark.network.timeout).
     */
    private static final long LONGEST_NANOS = TimeUnit.SECONDS.toNanos(30);
    /** The most messages that one connection keeps back; further messages leave at once. */
    static final int MAX_HELD = 1024;
    /**
     * The most held messages that are being staged at a time: data that is staged long before it is sent only occupies
     * memory.
     */
    static final int MAX_STAGING = 4;
    private static final int STEP = 64 << 10;

    /** Answers to stream requests in their order, while the first of them is kept back. */
    private final Deque<Held> streams = new ArrayDeque<>();
    private final Set<Held> held = new LinkedHashSet<>();
    /** Messages with a file that is not being staged yet. */
    private final Deque<Held> waiting = new ArrayDeque<>();
    private int staging;
    private boolean admitting;
    /** Time when the last message left, in System.nanoTime(). */
    private long left = System.nanoTime();

    private final Served served;

    Sending(Served served) {
        this.served = served;
    }

    /**
     * Adds the handler behind the encoder of a plain connection. An encrypted connection reads its files in other ways.
     */
    public static void into(SocketChannel channel, Served served) {
        ChannelPipeline pipeline = channel.pipeline();
        if (pipeline.get("encoder") != null && pipeline.get("chunkedWriter") == null && pipeline.get(NAME) == null) {
            pipeline.addAfter("encoder", NAME, new Sending(served));
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

    /** Starts to stage further files while there is room. */
    private void admit() {
        if (admitting) {
            return; // called from the loop below, which continues
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

    /** Returns null if the message may leave at once. */
    private Held keep(ChannelHandlerContext ctx, Object message, ChannelPromise promise) {
        boolean ordered = message instanceof StreamResponse || message instanceof StreamFailure;
        if (!ordered && !(message instanceof ChunkFetchSuccess)) {
            return null;
        }
        Held kept = new Held(ctx, message, promise, ordered);
        ManagedBuffer body = ((AbstractMessage) message).body();
        if (body instanceof FileSegmentManagedBuffer && held.size() < MAX_HELD) {
            FileSegmentManagedBuffer segment = (FileSegmentManagedBuffer) body;
            File file = segment.getLength() > 0 ? served.governed(segment.getFile()) : null;
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

    /**
     * The connection has ended: passes all held messages to the encoder, which is removed last and fails their
     * promises.
     */
    @Override
    public void handlerRemoved(ChannelHandlerContext ctx) {
        streams.clear();
        waiting.clear();
        for (Held left : new ArrayList<>(held)) {
            Gate.close(left.stream, left.at, true);
            left.leave();
        }
    }

    /** A message that waits for its file, or for earlier messages. */
    private final class Held implements Runnable {
        private final ChannelHandlerContext ctx;
        private final Object message;
        private final ChannelPromise promise;
        private final boolean ordered;
        /** Null if the message only waits for earlier messages. */
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
                stream = Gates.open(false, Gates.INTERMEDIATE, served.flow(file), file, served.peer(ctx.channel()), at,
                        to, () -> ctx.executor().execute(this));
            } catch (Throwable t) {
                Gate.failed(t);
            }
        }

        /**
         * Checks how far the file is staged, and sends the messages that need not wait any longer. Runs on the event
         * loop.
         */
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

        /** Sends the message with a flush, since the original flush may be long over. */
        private void leave() {
            held.remove(this);
            left = System.nanoTime();
            ctx.writeAndFlush(message, promise);
        }
    }
}
