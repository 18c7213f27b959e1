package penstock.shuffle;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import io.netty.channel.ChannelPromise;
import io.netty.channel.FileRegion;
import io.netty.channel.embedded.EmbeddedChannel;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.stream.ChunkedWriteHandler;
import io.netty.util.ReferenceCounted;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
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
import java.util.concurrent.TimeUnit;
import org.apache.commons.io.FileUtils;
import org.apache.hadoop.mapred.FadvisedChunkedFile;
import org.apache.hadoop.mapred.FadvisedFileRegion;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import penstock.core.Client;
import penstock.core.Frames;
import penstock.core.Gates;
import penstock.core.LocalDirectories;
import penstock.core.Names;
import penstock.core.Peer;
import penstock.core.Patience;
import penstock.core.Role;
import penstock.core.TestDaemon;
import penstock.core.UnixSockets;

/**
 * Compares a shuffle connection with and without the handler, on a transport that accepts a scripted number of bytes
 * and fails at a scripted byte: the bytes and the end of each message must be the same. Nothing is held here, but parts
 * are still sent one by one.
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
        client = new Client(UnixSockets.find(), "/none", "test", Role.NODEMANAGER, "", Patience.USUAL);
        Gates.install(client);
    }

    @AfterEach
    void remove() throws Exception {
        Gates.install(null);
        FileUtils.deleteDirectory(directory.toFile());
    }

    /** The end of the pipeline, which treats a message as netty's ChannelOutboundBuffer and a socket do. */
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

        /** Accepts up to n bytes. Returns true if there was anything to accept. */
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

        /** Returns true if the whole message has been sent. */
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

    /** The result of one connection. */
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
                if (kind > 2 || channel.isOpen()) { // later messages meet no handler, and netty does not release them
                    files.add(open);
                }
                if (kind == 2) {
                    // An empty message that waits when its connection ends succeeds, with netty alone as well.
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
            // Netty alone does not close a chunked file if its promise has failed before its turn.
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
        long failures = Gates.FAILURES.sum();
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
        assertEquals(failures, Gates.FAILURES.sum());
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
        assertEquals(1, region.refCnt(), "the part in transit");
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
                assertTrue(wire.take(channel, FILE), "it waits for bytes that will never come");
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
        FadvisedFileRegion copied = new FadvisedFileRegion(new RandomAccessFile(file.toFile(), "r"), 0, 10, true, 0,
                null, file.toString(), 1, false);
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
    void whatThrowsInOursLeavesTheOriginal() throws Exception {
        Wire wire = new Wire(Long.MAX_VALUE);
        EmbeddedChannel channel = channel(wire);
        long before = Gates.FAILURES.sum();
        FadvisedFileRegion nameless = new FadvisedFileRegion(new RandomAccessFile(file.toFile(), "r"), 7, 10, true, 0,
                null, null, 1, true);
        ChannelFuture future = channel.writeAndFlush(nameless);
        assertSame(nameless, wire.queue.peek()[0]);
        assertEquals(before + 1, Gates.FAILURES.sum());
        Gates.FAILURES.add(-1); // other tests in this JVM count failures as well
        wire.take(channel, 10);
        assertTrue(future.isSuccess());
        assertArrayEquals(Arrays.copyOfRange(data, 7, 17), wire.bytes.toByteArray());
        channel.finishAndReleaseAll();
    }

    /** Sends the chunks of a ShuffleHandler with SSL on a real connection with a daemon, but without the encryption. */
    @Test
    void aChunkedFileIsHeldAtItsMarkToo() throws Exception {
        Path socket = directory.resolve("s");
        NioEventLoopGroup loop = new NioEventLoopGroup(1);
        Client held = new Client(UnixSockets.find(), socket.toString(), "test", Role.NODEMANAGER, "",
                Patience.USUAL);
        try (TestDaemon daemon = new TestDaemon(socket, Frames.ENFORCE)) {
            Gates.install(held);
            Gates.serve(List.of(directory.toString()));
            while (!held.enforcing(System.nanoTime())) {
                Thread.onSpinWait();
            }
            RandomAccessFile open = new RandomAccessFile(file.toFile(), "r");
            FadvisedChunkedFile message =
                    new FadvisedChunkedFile(open, 100, 1_000_000, 60 << 10, false, 0, null, file.toString());
            Channel server = new ServerBootstrap().group(loop).channel(NioServerSocketChannel.class)
                    .childHandler(new ChannelInitializer<SocketChannel>() {
                        @Override
                        protected void initChannel(SocketChannel channel) {
                            channel.pipeline().addLast(new ChunkedWriteHandler());
                            Shuffle.govern(channel);
                            channel.pipeline().addLast(new ChannelInboundHandlerAdapter() {
                                @Override
                                public void channelActive(ChannelHandlerContext ctx) {
                                    ctx.write(message);
                                    ctx.writeAndFlush(Unpooled.wrappedBuffer(new byte[] {1}))
                                            .addListener(ChannelFutureListener.CLOSE);
                                }
                            });
                        }
                    }).bind("127.0.0.1", 0).sync().channel();
            int port = ((InetSocketAddress) server.localAddress()).getPort();
            try (Socket reducer = new Socket("127.0.0.1", port)) {
                TestDaemon.Heard disk = daemon.next(Frames.OPEN, h -> h.kind() == Frames.INTERMEDIATE);
                TestDaemon.Heard network = daemon.next(Frames.OPEN, h -> h.kind() == Frames.NETWORK);
                assertEquals(100, disk.from());
                assertEquals(1_000_100, disk.to());
                daemon.mark(network.stream(), Long.MAX_VALUE);
                daemon.mark(disk.stream(), 100 + 200_000);
                int chunk = 60 << 10; // a chunk needs 64 KiB to be staged: the third needs 184 KiB
                byte[] bytes = reducer.getInputStream().readNBytes(3 * chunk);
                assertArrayEquals(Arrays.copyOfRange(data, 100, 100 + 3 * chunk), bytes);
                daemon.next(Frames.PROGRESS, h -> h.stream() == disk.stream() && h.position() == 100 + 3 * chunk);
                reducer.setSoTimeout(300);
                assertThrows(SocketTimeoutException.class, () -> reducer.getInputStream().read());
                reducer.setSoTimeout(20_000);
                daemon.mark(disk.stream(), Long.MAX_VALUE);
                bytes = reducer.getInputStream().readAllBytes();
                byte[] rest = Arrays.copyOfRange(data, 100 + 3 * chunk, 1_000_101);
                rest[rest.length - 1] = 1;
                assertArrayEquals(rest, bytes);
                assertEquals(1_000_100, daemon.next(Frames.CLOSE, h -> h.stream() == disk.stream()).position());
            }
        } finally {
            loop.shutdownGracefully(0, 1, TimeUnit.SECONDS);
            held.stop();
        }
    }

    @Test
    void theFlowIsTheFirstApplicationOfThePath() {
        String local = "/data/nm/usercache/u/appcache/application_1700000000000_0007/output/";
        assertEquals("application_1700000000000_0007", LocalDirectories.flow(local + "attempt_1/file.out"));
        assertEquals("application_1700000000000_0007",
                LocalDirectories.flow(local + "../x/usercache/u/appcache/application_1700000000000_0008/file.out"));
        for (String other : new String[] {"/data/file.out", "/d/usercache/u/appcache/application_1_0007/file.out",
            "/d/usercache/a/b/appcache/application_1700000000000_0007/file.out", ""}) {
            assertEquals(Names.UNATTRIBUTED, LocalDirectories.flow(other));
        }
        assertNull(MapOutput.open("/x", 0, 0, Peer.UNKNOWN, null));
    }
}
