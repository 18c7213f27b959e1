package penstock.agent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import io.netty.channel.ChannelPromise;
import io.netty.channel.FileRegion;
import io.netty.channel.embedded.EmbeddedChannel;
import io.netty.handler.stream.ChunkedWriteHandler;
import io.netty.util.ReferenceCounted;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.WritableByteChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.Random;
import org.apache.commons.io.FileUtils;
import org.apache.hadoop.mapred.FadvisedChunkedFile;
import org.apache.hadoop.mapred.FadvisedFileRegion;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * A connection of the shuffle with and without us, on a transport that takes as many
 * bytes as it is told and fails where it is told: the same bytes, and for each message
 * the same end. Nothing is held here, but parts go one by one all the same.
 */
@Timeout(120)
class ShufflePartsTest {
    private static final int FILE = 1_500_000;
    private static final String BELOW = "usercache/u/appcache/application_1700000000000_0001/output/a";

    private Path directory;
    private Path file;
    private byte[] data;
    private Client client;

    @BeforeEach
    void make() throws Exception {
        directory = Files.createTempDirectory("penstock");
        file = Files.createDirectories(directory.resolve(BELOW)).resolve("file.out");
        data = new byte[FILE];
        new Random(1).nextBytes(data);
        Files.write(file, data);
        client = new Client(UnixSockets.find(), "/none", "test", Role.NODEMANAGER, "", Client.BACKSTOP_NANOS);
        Gates.install(client);
    }

    @AfterEach
    void remove() throws Exception {
        Gates.install(null);
        FileUtils.deleteDirectory(directory.toFile());
    }

    /** The end of the pipeline, as netty's ChannelOutboundBuffer and a socket are to a message. */
    private static final class Wire extends ChannelOutboundHandlerAdapter {
        private final Deque<Object[]> queue = new ArrayDeque<>();
        private int flushed;
        private boolean broken;
        final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        private final long failAt;
        private final IOException cause = new IOException("the test's");
        int regions;
        long longest;

        Wire(long failAt) {
            this.failAt = failAt;
        }

        @Override
        public void write(ChannelHandlerContext ctx, Object message, ChannelPromise promise) {
            if (broken) {
                ((ReferenceCounted) message).release();
                promise.tryFailure(new ClosedChannelException());
                return;
            }
            queue.add(new Object[] {message, promise});
            if (message instanceof FileRegion) {
                regions++;
                longest = Math.max(longest, ((FileRegion) message).count());
            }
        }

        @Override
        public void flush(ChannelHandlerContext ctx) {
            flushed = queue.size();
        }

        /** Takes up to n bytes; true if there was anything to take. */
        boolean take(EmbeddedChannel channel, int n) throws IOException {
            int[] left = {n};
            boolean any = false;
            while (flushed > 0 && left[0] >= 0) {
                Object message = queue.peek()[0];
                if (send(message, left)) {
                    flushed--;
                    end(queue.poll(), null);
                    any = true;
                } else if (bytes.size() >= failAt) {
                    fail(channel);
                    return true;
                } else {
                    return any || left[0] < n;
                }
            }
            return any;
        }

        private void fail(EmbeddedChannel channel) {
            broken = true;
            while (!queue.isEmpty()) {
                end(queue.poll(), cause);
            }
            flushed = 0;
            channel.close();
        }

        private static void end(Object[] entry, Throwable failure) {
            ((ReferenceCounted) entry[0]).release();
            ChannelPromise promise = (ChannelPromise) entry[1];
            if (failure == null) {
                promise.trySuccess();
            } else {
                promise.tryFailure(failure);
            }
        }

        /** True if all of the message is sent. */
        private boolean send(Object message, int[] left) throws IOException {
            if (message instanceof ByteBuf) {
                ByteBuf b = (ByteBuf) message;
                int n = (int) Math.min(Math.min(b.readableBytes(), left[0]), failAt - bytes.size());
                b.readBytes(bytes, n);
                left[0] -= n;
                return !b.isReadable();
            }
            FileRegion region = (FileRegion) message;
            WritableByteChannel limited = new WritableByteChannel() {
                @Override
                public int write(ByteBuffer from) {
                    int n = (int) Math.min(Math.min(from.remaining(), left[0]), failAt - bytes.size());
                    byte[] copy = new byte[n];
                    from.get(copy);
                    bytes.writeBytes(copy);
                    left[0] -= n;
                    return n;
                }

                @Override
                public boolean isOpen() {
                    return true;
                }

                @Override
                public void close() { }
            };
            if (region.transferred() < region.count()) {
                region.transferTo(limited, region.transferred());
            }
            return region.transferred() == region.count();
        }
    }

    /** What became of one connection. */
    private record Outcome(byte[] bytes, List<Boolean> succeeded, List<Integer> endedInOrder, Throwable first,
            Wire wire) { }

    private Outcome run(long seed, boolean governed, long failAt) throws Exception {
        Random random = new Random(seed);
        Wire wire = new Wire(failAt);
        EmbeddedChannel channel = new EmbeddedChannel(wire, new ChunkedWriteHandler());
        if (governed) {
            Shuffle.govern(channel);
        }
        List<ChannelFuture> futures = new ArrayList<>();
        List<FadvisedFileRegion> regions = new ArrayList<>();
        List<RandomAccessFile> files = new ArrayList<>();
        List<Integer> ended = new ArrayList<>();
        for (int i = 0; i < 12; i++) {
            int id = i;
            Object message;
            int kind = random.nextInt(5);
            if (kind < 2) {
                byte[] bytes = new byte[random.nextInt(2000)];
                random.nextBytes(bytes);
                message = Unpooled.wrappedBuffer(bytes);
            } else {
                int start = random.nextInt(FILE);
                int length = random.nextInt(4) == 0 ? random.nextInt(3) : random.nextInt(FILE - start);
                length = Math.min(length, FILE - start);
                RandomAccessFile open = new RandomAccessFile(file.toFile(), "r");
                if (kind > 2 || channel.isOpen()) { // what comes later meets no handler, and netty forgets it
                    files.add(open);
                }
                if (kind == 2) {
                    // An empty one that waits in a connection that ends succeeds, with netty alone too.
                    length = Math.max(length, 1);
                    message = new FadvisedChunkedFile(open, start, length, 60 << 10, false, 0, null, file.toString());
                } else {
                    FadvisedFileRegion region = region(open, start, length);
                    regions.add(region);
                    message = region;
                }
            }
            ChannelFuture future = random.nextBoolean() ? channel.writeAndFlush(message) : channel.write(message);
            future.addListener(done -> ended.add(id));
            futures.add(future);
            for (int turns = random.nextInt(4); turns > 0; turns--) {
                wire.take(channel, random.nextInt(400_000));
                channel.runPendingTasks();
            }
        }
        channel.flush();
        while (wire.take(channel, random.nextInt(100_000) + 1) || channel.hasPendingTasks()) {
            channel.runPendingTasks();
        }
        List<Boolean> succeeded = new ArrayList<>();
        Throwable first = null;
        for (ChannelFuture future : futures) {
            assertTrue(future.isDone());
            succeeded.add(future.isSuccess());
            first = first == null ? future.cause() : first;
        }
        for (FadvisedFileRegion region : regions) {
            assertEquals(0, region.refCnt());
        }
        for (RandomAccessFile open : files) {
            // Netty alone forgets a chunked file whose promise has failed before its turn.
            assertFalse(governed && open.getFD().valid(), "a file is still open, seed " + seed);
        }
        channel.finishAndReleaseAll();
        return new Outcome(wire.bytes.toByteArray(), succeeded, ended, first, wire);
    }

    private FadvisedFileRegion region(RandomAccessFile open, int start, int length) throws IOException {
        return new FadvisedFileRegion(open, start, length, true, 4 << 20, null, file.toString(), 128 << 10, true);
    }

    @Test
    void aConnectionIsTheSameWithUsAndWithout() throws Exception {
        long base = new Random().nextLong();
        for (long seed = base; seed < base + 60; seed++) {
            String with = "seed " + seed;
            Outcome plain = run(seed, false, Long.MAX_VALUE);
            Outcome ours = run(seed, true, Long.MAX_VALUE);
            assertArrayEquals(plain.bytes, ours.bytes, with);
            assertEquals(plain.succeeded, ours.succeeded, with);
            assertFalse(ours.succeeded.contains(false), with);
            assertEquals(plain.endedInOrder, ours.endedInOrder, with);
            assertTrue(ours.wire.longest <= MapOutput.PART, with);
            if (plain.bytes.length > 0) {
                long failAt = new Random(seed).nextInt(plain.bytes.length);
                plain = run(seed, false, failAt);
                ours = run(seed, true, failAt);
                assertArrayEquals(plain.bytes, ours.bytes, with);
                assertEquals(failAt, ours.bytes.length, with);
                assertEquals(plain.succeeded, ours.succeeded, with);
                assertEquals(plain.first.getMessage(), ours.first.getMessage(), with);
            }
            assertEquals(0, client.streamsOpen(), with);
        }
        assertEquals(0, Gates.FAILURES.sum());
    }

    private EmbeddedChannel channel(Wire wire) {
        EmbeddedChannel channel = new EmbeddedChannel(wire, new ChunkedWriteHandler());
        Shuffle.govern(channel);
        return channel;
    }

    @Test
    void onePartIsUnderWayAtATime() throws Exception {
        Wire wire = new Wire(Long.MAX_VALUE);
        EmbeddedChannel channel = channel(wire);
        FadvisedFileRegion region = region(new RandomAccessFile(file.toFile(), "r"), 5, 1_000_000);
        ChannelFuture future = channel.writeAndFlush(region);
        ChannelFuture behind = channel.writeAndFlush(Unpooled.wrappedBuffer(new byte[] {1}));
        for (int parts = 1; parts <= 4; parts++) {
            channel.runPendingTasks();
            assertEquals(parts, wire.regions);
            assertFalse(future.isDone());
            assertFalse(behind.isDone());
            wire.take(channel, MapOutput.PART);
        }
        assertTrue(future.isSuccess());
        wire.take(channel, 1);
        assertTrue(behind.isSuccess());
        byte[] expected = Arrays.copyOfRange(data, 5, 1_000_006);
        expected[1_000_000] = 1;
        assertArrayEquals(expected, wire.bytes.toByteArray());
        channel.finishAndReleaseAll();
    }

    @Test
    void aCancelledOutputIsReleasedAndTheNextOneGoes() throws Exception {
        Wire wire = new Wire(Long.MAX_VALUE);
        EmbeddedChannel channel = channel(wire);
        FadvisedFileRegion region = region(new RandomAccessFile(file.toFile(), "r"), 0, FILE);
        ChannelFuture future = channel.writeAndFlush(region);
        assertTrue(future.cancel(false));
        assertEquals(1, region.refCnt(), "the part that is under way");
        ChannelFuture behind = channel.writeAndFlush(Unpooled.wrappedBuffer(new byte[] {1}));
        while (wire.take(channel, FILE) || channel.hasPendingTasks()) {
            channel.runPendingTasks();
        }
        assertTrue(behind.isSuccess());
        assertEquals(0, region.refCnt());
        assertEquals(0, client.streamsOpen());
        channel.finishAndReleaseAll();
    }

    @Test
    void aFileThatIsTooShortFailsTheWrite() throws Exception {
        Wire wire = new Wire(Long.MAX_VALUE);
        EmbeddedChannel channel = channel(wire);
        FadvisedFileRegion region = region(new RandomAccessFile(file.toFile(), "r"), 0, FILE + 10);
        channel.writeAndFlush(region);
        IOException failure = null;
        while (failure == null) {
            channel.runPendingTasks();
            try {
                assertTrue(wire.take(channel, FILE), "it waits for what will never come");
            } catch (IOException e) {
                failure = e;
            }
        }
        assertTrue(failure.getMessage().contains("has 1500000 bytes"), failure.getMessage());
        wire.fail(channel);
        assertEquals(0, region.refCnt());
        channel.finishAndReleaseAll();
    }

    @Test
    void whatIsNotGovernedIsTheSameObject() throws Exception {
        Wire wire = new Wire(Long.MAX_VALUE);
        EmbeddedChannel channel = channel(wire);
        long before = Gates.SHUFFLE_UNGOVERNED.sum();
        FadvisedFileRegion empty = region(new RandomAccessFile(file.toFile(), "r"), 0, 0);
        FadvisedFileRegion copied = new FadvisedFileRegion(new RandomAccessFile(file.toFile(), "r"), 0, 10, true, 0, null,
                file.toString(), 1, false);
        Gates.install(null);
        FadvisedFileRegion without = region(new RandomAccessFile(file.toFile(), "r"), 0, 10);
        channel.write(without);
        Gates.install(client);
        channel.write(empty);
        channel.writeAndFlush(copied);
        assertSame(without, wire.queue.poll()[0]);
        assertSame(empty, wire.queue.poll()[0]);
        assertSame(copied, wire.queue.poll()[0]);
        assertEquals(before + 3, Gates.SHUFFLE_UNGOVERNED.sum());
        for (FadvisedFileRegion region : List.of(empty, copied, without)) {
            region.release();
        }
        channel.finishAndReleaseAll();
    }

    @Test
    void theFlowIsTheFirstApplicationOfThePath() {
        String local = "/data/nm/usercache/u/appcache/application_1700000000000_0007/output/";
        assertEquals("application_1700000000000_0007", Shuffle.flow(local + "attempt_1/file.out"));
        assertEquals("application_1700000000000_0007",
                Shuffle.flow(local + "../x/usercache/u/appcache/application_1700000000000_0008/file.out"));
        for (String other : new String[] {"/data/file.out", "/d/usercache/u/appcache/application_1_0007/file.out",
            "/d/usercache/a/b/appcache/application_1700000000000_0007/file.out", ""}) {
            assertEquals(Names.UNATTRIBUTED, Shuffle.flow(other));
        }
        assertNull(MapOutput.open("/x", 0, 0, null, null));
    }
}
