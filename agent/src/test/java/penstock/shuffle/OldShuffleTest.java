package penstock.shuffle;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.RandomAccessFile;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.mapred.FadvisedFileRegion;
import org.jboss.netty.bootstrap.ServerBootstrap;
import org.jboss.netty.buffer.ChannelBuffers;
import org.jboss.netty.channel.Channel;
import org.jboss.netty.channel.ChannelFuture;
import org.jboss.netty.channel.ChannelHandlerContext;
import org.jboss.netty.channel.ChannelPipeline;
import org.jboss.netty.channel.ChannelStateEvent;
import org.jboss.netty.channel.Channels;
import org.jboss.netty.channel.ExceptionEvent;
import org.jboss.netty.channel.SimpleChannelUpstreamHandler;
import org.jboss.netty.channel.socket.nio.NioServerSocketChannelFactory;
import org.jboss.netty.handler.stream.ChunkedWriteHandler;
import org.jboss.netty.util.ExternalResourceReleasable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import penstock.core.Client;
import penstock.core.Gates;
import penstock.core.Patience;
import penstock.core.Role;
import penstock.core.TestGates;
import penstock.core.UnixSockets;

/**
 * Sends random messages by netty 3 over a real connection, with the handler of Hadoop before 3.4: a reader that stays
 * gets all bytes in order, and each message ends once, also if the reader goes at a random byte. Nothing is held here,
 * but parts are sent one by one. Maven runs it with the classes of Hadoop 3.3.6 only.
 */
@Timeout(120)
class OldShuffleTest {
    private static final int FILE = 1_500_000;
    private static final int ROUNDS = 40;

    @TempDir
    Path directory;
    private Path file;
    private byte[] data;
    private ServerBootstrap server;
    private Channel listener;
    private final BlockingQueue<List<ChannelFuture>> sent = new LinkedBlockingQueue<>();
    /** What the next connection sends, and the files of its regions. */
    private volatile List<Object> messages;
    private final List<RandomAccessFile> open = new ArrayList<>();

    @BeforeEach
    void listen() throws Exception {
        file = directory.resolve("usercache/u/appcache/application_1700000000000_0001/output/a/file.out");
        Files.createDirectories(file.getParent());
        data = new byte[FILE];
        new Random(1).nextBytes(data);
        Files.write(file, data);
        Gates.install(new Client(UnixSockets.find(), "/none", "test", Role.NODEMANAGER, "", Patience.USUAL));
        server = new ServerBootstrap(new NioServerSocketChannelFactory(Executors.newCachedThreadPool(),
                Executors.newCachedThreadPool(), 1));
        server.setPipelineFactory(() -> {
            ChannelPipeline pipeline = Channels.pipeline();
            pipeline.addLast("chunking", new ChunkedWriteHandler());
            pipeline.addLast("sender", new Sender());
            OldShuffle.govern(pipeline);
            return pipeline;
        });
        listener = server.bind(new InetSocketAddress("127.0.0.1", 0));
    }

    @AfterEach
    void end() throws Exception {
        listener.close().await();
        server.releaseExternalResources();
        Gates.install(null);
    }

    private final class Sender extends SimpleChannelUpstreamHandler {
        @Override
        public void channelConnected(ChannelHandlerContext ctx, ChannelStateEvent e) {
            List<ChannelFuture> futures = new ArrayList<>();
            for (Object message : messages) {
                ChannelFuture future = ctx.getChannel().write(message);
                if (message instanceof ExternalResourceReleasable) { // as the ShuffleHandler does
                    future.addListener(done -> ((ExternalResourceReleasable) message).releaseExternalResources());
                }
                futures.add(future);
            }
            futures.get(futures.size() - 1).addListener(done -> ctx.getChannel().close());
            sent.add(futures);
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext ctx, ExceptionEvent e) {
            ctx.getChannel().close();
        }
    }

    private byte[] draw(Random random) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        List<Object> drawn = new ArrayList<>();
        open.clear();
        for (int i = 1 + random.nextInt(4); i > 0; i--) {
            byte[] header = new byte[1 + random.nextInt(100)];
            random.nextBytes(header);
            drawn.add(ChannelBuffers.wrappedBuffer(header));
            bytes.write(header);
            int from = random.nextInt(FILE);
            int length = Math.min(FILE - from, 1 << random.nextInt(21));
            RandomAccessFile opened = new RandomAccessFile(file.toFile(), "r");
            open.add(opened);
            drawn.add(new FadvisedFileRegion(opened, from, length, false, 0, null, file.toString(), 128 << 10, true));
            bytes.write(data, from, length);
        }
        messages = drawn;
        return bytes.toByteArray();
    }

    @Test
    void readersGetAllBytesAndEachMessageEnds() throws Exception {
        long seed = System.nanoTime();
        Random random = new Random(seed);
        long ungoverned = Gates.SHUFFLE_UNGOVERNED.sum();
        for (int round = 0; round < ROUNDS; round++) {
            String with = "seed " + seed + ", round " + round;
            byte[] expected = draw(random);
            boolean stays = random.nextBoolean();
            int until = stays ? expected.length : random.nextInt(expected.length);
            byte[] got;
            try (Socket socket = new Socket("127.0.0.1", ((InetSocketAddress) listener.getLocalAddress()).getPort())) {
                InputStream in = socket.getInputStream();
                got = in.readNBytes(until);
                assertFalse(stays && in.read() >= 0, with);
            }
            assertArrayEquals(Arrays.copyOf(expected, until), got, with);
            List<ChannelFuture> futures = sent.poll(30, TimeUnit.SECONDS);
            for (ChannelFuture future : futures) {
                assertTrue(future.await(30, TimeUnit.SECONDS), with);
                assertTrue(!stays || future.isSuccess(), with);
            }
            assertTrue(futures.get(0).getChannel().getCloseFuture().await(30, TimeUnit.SECONDS), with);
            for (RandomAccessFile opened : open) {
                while (opened.getFD().valid()) { // only the test's time limit ends the wait
                    Thread.onSpinWait();
                }
            }
        }
        assertEquals(0, TestGates.failures());
        assertEquals(ungoverned, Gates.SHUFFLE_UNGOVERNED.sum());
        assertEquals(0, TestGates.streamsOpen());
    }
}
