package penstock.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.channel.ChannelFuture;
import io.netty.channel.embedded.EmbeddedChannel;
import java.io.File;
import java.nio.file.Files;
import org.apache.spark.network.buffer.FileSegmentManagedBuffer;
import org.apache.spark.network.protocol.ChunkFetchSuccess;
import org.apache.spark.network.protocol.StreamChunkId;
import org.apache.spark.network.protocol.StreamFailure;
import org.apache.spark.network.protocol.StreamResponse;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import penstock.core.TestDaemon.Heard;
import penstock.core.TestDaemon;
import penstock.core.TestGates;

/**
 * Tests, in netty's own pipeline without a network, which messages are kept back, in which order they leave, and that
 * no thread waits.
 */
@Timeout(30)
class SendingTest extends InAnExecutor {
    private static final int LENGTH = 200_000;

    private EmbeddedChannel channel;
    /** A new file for each test, so that no test receives frames of an earlier test. */
    private File file;

    @BeforeEach
    void connect() throws Exception {
        channel = new EmbeddedChannel(new Sending(ExecutorsFiles.all()));
        file = Files.write(Files.createTempFile(MANAGER, "shuffle", ".data"), new byte[LENGTH]).toFile();
    }

    @AfterEach
    void disconnect() {
        channel.finishAndReleaseAll();
    }

    private FileSegmentManagedBuffer part(long from, long length) {
        return new FileSegmentManagedBuffer(null, file, from, length);
    }

    private ChunkFetchSuccess chunk(int number, long from, long length) {
        return new ChunkFetchSuccess(new StreamChunkId(1, number), part(from, length));
    }

    private Heard opened() throws Exception {
        Heard open = daemon.next(TestDaemon.OPEN, h -> h.block().equals(file.getPath()));
        assertFalse(open.write());
        assertEquals(APPLICATION, open.flow());
        return open;
    }

    private Object leaves() {
        return InAShuffleService.leaves(channel);
    }

    private void nothingLeaves() {
        channel.runPendingTasks();
        assertNull(channel.readOutbound());
    }

    @Test
    void aChunkLeavesWhenAllOfItIsStaged() throws Exception {
        ChunkFetchSuccess chunk = chunk(0, 1000, LENGTH - 1000);
        ChannelFuture sent = channel.writeAndFlush(chunk);
        Heard open = opened();
        assertEquals(1000, open.from());
        assertEquals(LENGTH, open.to());
        nothingLeaves();
        daemon.mark(open.stream(), LENGTH - 1);
        // When half is staged, the daemon receives the reader's possible position, and stages more.
        for (long reported = 0; reported < 1000 + (64 << 10);) {
            channel.runPendingTasks();
            for (Heard h : daemon.heard()) {
                reported = h.stream() == open.stream() ? Math.max(reported, h.position()) : reported;
            }
        }
        nothingLeaves();
        assertFalse(sent.isDone());
        daemon.mark(open.stream(), LENGTH);
        assertSame(chunk, leaves());
        assertTrue(sent.isSuccess());
        Heard close = daemon.next(TestDaemon.CLOSE, h -> h.stream() == open.stream());
        assertEquals(LENGTH, close.position());
        assertFalse(close.failed());
    }

    @Test
    void othersOvertakeAChunk() throws Exception {
        ChunkFetchSuccess first = chunk(0, 0, 1000);
        ChunkFetchSuccess second = chunk(1, 1000, 1000);
        channel.writeAndFlush(first);
        channel.writeAndFlush(second);
        Heard a = opened();
        Heard b = opened();
        channel.writeAndFlush("other");
        assertEquals("other", leaves());
        nothingLeaves();
        daemon.mark(b.stream(), Long.MAX_VALUE);
        assertSame(second, leaves());
        daemon.mark(a.stream(), Long.MAX_VALUE);
        assertSame(first, leaves());
    }

    /** Spark's other end matches answers to stream requests by their order. */
    @Test
    void streamsKeepTheirOrder() throws Exception {
        StreamResponse first = new StreamResponse("a", 1000, part(0, 1000));
        StreamResponse second = new StreamResponse("b", 1000, part(1000, 1000));
        StreamFailure third = new StreamFailure("c", "none");
        channel.writeAndFlush(first);
        channel.writeAndFlush(second);
        channel.writeAndFlush(third);
        Heard a = opened();
        Heard b = opened();
        daemon.mark(b.stream(), Long.MAX_VALUE);
        nothingLeaves();
        daemon.mark(a.stream(), Long.MAX_VALUE);
        assertSame(first, leaves());
        assertSame(second, leaves());
        assertSame(third, leaves());
        channel.writeAndFlush(third);
        assertSame(third, leaves());
    }

    @Test
    void whatIsNoGovernedFileLeavesAtOnce() throws Exception {
        File other = Files.write(DIRECTORY.resolve("other"), new byte[10]).toFile();
        ChunkFetchSuccess chunk = new ChunkFetchSuccess(new StreamChunkId(1, 0),
                new FileSegmentManagedBuffer(null, other, 0, 10));
        channel.writeAndFlush(chunk);
        assertSame(chunk, channel.readOutbound());
        ChunkFetchSuccess empty = chunk(0, 5, 0);
        channel.writeAndFlush(empty);
        assertSame(empty, channel.readOutbound());
        assertTrue(daemon.heard().stream().noneMatch(h -> h.block().equals(file.getPath())
                || h.block().equals(other.getPath())));
    }

    @Test
    void aConnectionThatEndsLeavesNothingBehind() throws Exception {
        ChannelFuture sent = channel.writeAndFlush(chunk(0, 0, 1000));
        ChannelFuture streamed = channel.writeAndFlush(new StreamResponse("a", 1000, part(0, 1000)));
        Heard a = opened();
        Heard b = opened();
        channel.close();
        channel.runPendingTasks();
        assertTrue(sent.isDone() && streamed.isDone());
        assertNotNull(sent.cause());
        for (Heard open : new Heard[] {a, b}) {
            assertTrue(daemon.next(TestDaemon.CLOSE, h -> h.stream() == open.stream()).failed());
        }
    }

    /** The number of messages that may be kept back is bounded; one more leaves unstaged. */
    @Test
    void keepsBackSoManyAndNoMore() throws Exception {
        for (int i = 0; i < Sending.MAX_HELD; i++) {
            channel.writeAndFlush(chunk(i, 0, 1000));
        }
        nothingLeaves();
        ChunkFetchSuccess last = chunk(Sending.MAX_HELD, 0, 1000);
        channel.writeAndFlush(last);
        assertSame(last, channel.readOutbound());
        channel.close();
        assertEquals(0, TestGates.streamsOpenSoon());
    }
}
