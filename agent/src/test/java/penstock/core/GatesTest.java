package penstock.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import penstock.core.TestDaemon.Heard;

/** Tests gates as a DataNode's threads use them, with a real socket and a scripted daemon. */
@Timeout(30)
class GatesTest {
    private static final File BLOCK = new File("/d/current/blk_1");
    private static final File META = new File("/d/current/blk_1_1.meta");
    private static final String CLIENT = "DFSClient_attempt_1700000000000_0001_m_000000_0_1_1";
    private static final String APPLICATION = "application_1700000000000_0001";

    /** Name of the transport; by default Unix sockets. */
    String transport = "unix";
    private Path directory;
    private Path socket;
    private TestDaemon daemon;
    private Client client;

    @BeforeEach
    void begin() throws Exception {
        directory = Files.createTempDirectory("penstock");
        socket = directory.resolve("s");
    }

    @AfterEach
    void end() throws Exception {
        Gates.install(null);
        if (client != null) {
            client.stop();
        }
        if (daemon != null) {
            daemon.close();
        }
        Files.deleteIfExists(socket);
        Files.delete(directory);
    }

    /** As GatesLoopbackTest needs it: a daemon that {@link #transport} reaches. */
    TestDaemon newDaemon(int mode) throws Exception {
        return new TestDaemon(socket, mode, transport.equals("loopback"));
    }

    private void start(int mode) throws Exception {
        daemon = newDaemon(mode);
        startClient(Patience.USUAL);
        connected();
    }

    private void startClient(Patience usual) {
        client = new Client(Transport.named(transport), socket.toString(), "test", Role.DATANODE, "", usual);
        Gates.install(client);
        Gates.serve(List.of("/d", "/e"));
    }

    private void connected() throws Exception {
        assertEquals(List.of("/d", "/e"), daemon.next(Frames.HELLO).directories());
        await(() -> client.isConnected() && client.mode() == daemon.mode);
    }

    private static void await(BooleanSupplier condition) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, "it did not happen within 20 s");
            Thread.onSpinWait();
        }
    }

    /** A Hadoop thread. */
    private static final class Worker<T> {
        final FutureTask<T> task;
        final Thread thread;

        Worker(Callable<T> body) {
            task = new FutureTask<>(body);
            thread = new Thread(task);
            thread.setDaemon(true);
            thread.start();
        }

        /** Waits until the thread is parked in a gate. */
        Worker<T> held() {
            await(() -> LockSupport.getBlocker(thread) instanceof Stream);
            assertFalse(task.isDone());
            return this;
        }

        T result() throws Exception {
            return task.get(20, TimeUnit.SECONDS);
        }
    }

    private static Worker<Stream> reader(long start, long length) {
        return new Worker<>(() -> {
            Op op = Gates.enterClient(CLIENT, Peer.UNKNOWN);
            try {
                Stream s = Gates.openRead(BLOCK, META, start, length, 1_000_000);
                Gates.constructed();
                return s;
            } finally {
                Gates.exit(op);
            }
        });
    }

    private static Worker<Boolean> packet(Stream s, long offset, long end) {
        return new Worker<>(() -> {
            Gates.read(s, offset, end);
            return Thread.currentThread().isInterrupted();
        });
    }

    private Stream openReader() throws Exception {
        Worker<Stream> reader = reader(0, -1);
        daemon.mark(daemon.next(Frames.OPEN).stream(), 0);
        return reader.result();
    }

    @Test
    void aReadWaitsForItsMetaFileAndThenForEachPacket() throws Exception {
        start(Frames.ENFORCE);
        Worker<Stream> reader = reader(1000, 10_000).held();
        Heard open = daemon.next(Frames.OPEN);
        assertEquals(APPLICATION, open.flow());
        assertEquals(BLOCK.getPath(), open.block());
        assertEquals(META.getPath(), open.meta());
        assertFalse(open.write());
        assertEquals(512, open.from()); // whole chunks
        assertEquals(11_264, open.to());
        daemon.mark(open.stream(), 511);
        reader.held();
        daemon.mark(open.stream(), 512);
        Stream s = reader.result();

        Worker<Boolean> packet = packet(s, 512, 4608).held();
        daemon.mark(open.stream(), 4607);
        packet.held();
        daemon.mark(open.stream(), 4608);
        packet.result();

        // The position is sent before a wait, whatever the stride.
        packet = packet(s, 4608, 8704).held();
        assertEquals(4608, daemon.next(Frames.PROGRESS).position());
        daemon.mark(open.stream(), Long.MAX_VALUE);
        packet.result();
        packet(s, 11_264, 11_264).result();
        Gates.close(s, 11_264, false);
        Gates.close(s, 11_264, true); // DataNodes close twice
        Heard close = daemon.next(Frames.CLOSE);
        assertEquals(11_264, close.position());
        assertFalse(close.failed());
        await(() -> client.streamsOpen() == 0);
    }

    @Test
    void nothingWaitsPastWhatWasAnnounced() throws Exception {
        start(Frames.ENFORCE);
        Worker<Stream> reader = reader(0, 10_000);
        Heard open = daemon.next(Frames.OPEN);
        daemon.mark(open.stream(), open.to());
        packet(reader.result(), 8192, 16_384).result(); // a block with chunks of 8 KiB
    }

    @Test
    void aReadOfNothingIsNotGoverned() throws Exception {
        start(Frames.ENFORCE);
        assertNull(reader(-1, 10).result());
        assertNull(reader(2_000_000, -1).result());
    }

    @Test
    void aWriteIsALease() throws Exception {
        start(Frames.ENFORCE);
        Op op = Gates.enterPipeline("", false, Peer.UNKNOWN);
        Stream s = Gates.openWrite(BLOCK, META, 100);
        Gates.exit(op);
        Heard open = daemon.next(Frames.OPEN);
        assertTrue(open.write());
        assertEquals("replication", open.flow());
        assertEquals(100, open.from());
        assertEquals(0, open.to());

        Worker<Void> first = write(s, 100).held();
        daemon.mark(open.stream(), 100);
        first.held();
        daemon.mark(open.stream(), 101); // a lease of one byte lets a packet pass
        first.result();
        Worker<Void> second = write(s, 5100).held();
        assertEquals(5100, daemon.next(Frames.PROGRESS).position());
        daemon.mark(open.stream(), 10_000);
        second.result();
        Gates.close(s, 9000, true);
        Heard close = daemon.next(Frames.CLOSE);
        assertEquals(9000, close.position());
        assertTrue(close.failed());
    }

    /** Reports the previous packets, and then receives a packet after onDisk bytes. */
    private static Worker<Void> write(Stream s, long onDisk) {
        return new Worker<>(() -> {
            Gates.received(s, onDisk);
            Gates.receiving(s);
            assertEquals(s, Gates.writing());
            Gates.packet(Gates.writing());
            Gates.received(s, onDisk);
            assertNull(Gates.writing());
            return null;
        });
    }

    @Test
    void progressIsToldOncePerStride() throws Exception {
        start(Frames.OBSERVE);
        Stream s = reader(0, -1).result();
        daemon.next(Frames.OPEN);
        for (int at = 0; at <= 10_000; at += 100) {
            Gates.read(s, at, at + 100);
        }
        Gates.close(s, 10_000, false);
        List<Heard> frames = daemon.until(Frames.CLOSE);
        assertTrue(frames.size() <= 11, frames.toString()); // later reports replace unsent ones
        long position = 0;
        for (Heard h : frames) {
            assertTrue(h.position() > position || h.type() == Frames.CLOSE);
            position = h.position();
        }
        assertEquals(10_000, position);
        assertEquals(10_000, s.reported);
    }

    @Test
    void aReadWithAnOpenMarkIsSeldomTold() throws Exception {
        start(Frames.OBSERVE);
        daemon.generous = true;
        Stream s = reader(0, -1).result();
        await(() -> s.mark == Long.MAX_VALUE);
        for (int at = 0; at <= 100_000; at += 100) {
            Gates.read(s, at, at + 100);
        }
        assertEquals(3 * Gates.OPEN_READ_STRIDES * TestDaemon.STRIDE, s.reported);
        Gates.close(s, 100_000, false);
        List<Heard> frames = daemon.until(Frames.CLOSE);
        assertTrue(frames.size() <= 5, frames.toString());
        assertEquals(100_000, frames.get(frames.size() - 1).position());
    }

    @Test
    void aReadFarFromItsMarkIsToldHalfOfTheWayToIt() throws Exception {
        start(Frames.OBSERVE);
        Stream s = reader(0, -1).result();
        daemon.next(Frames.OPEN);
        long reported = 0;
        s.mark(6L * TestDaemon.STRIDE);
        for (int at = 0; at <= 10_000; at += 100) {
            Gates.read(s, at, at + 100);
            if (s.reported != reported) {
                assertTrue(s.reported - reported >= 3 * TestDaemon.STRIDE, reported + " " + s.reported);
                reported = s.reported;
                if (at == 3 * TestDaemon.STRIDE) {
                    s.mark(30L * TestDaemon.STRIDE); // half of 27 strides, but at most 4
                }
            }
        }
        assertEquals(7 * TestDaemon.STRIDE, s.reported); // after 3 strides, then after 4 more
        Gates.close(s, 10_000, false);
        daemon.until(Frames.CLOSE);
    }

    @Test
    void gatesOpenWithinASecondOfTheLastHeartbeat() throws Exception {
        start(Frames.ENFORCE);
        Stream s = openReader();
        Worker<Boolean> packet = packet(s, 0, 4096).held();
        long held = System.nanoTime();
        await(() -> client.lastHeartbeat() - held > 0); // an orphaned wait counts from the later of its start and this
        long orphaned = Gates.ORPHANS.count();
        daemon.beating = false;
        packet.result();
        long silence = System.nanoTime() - daemon.lastBeat;
        assertEquals(orphaned + 1, Gates.ORPHANS.count());
        assertTrue(Beats.LOST_NANOS < TimeUnit.SECONDS.toNanos(1)); // otherwise the wait would end later
        assertTrue(Gates.ORPHANS.latestNanos() >= Beats.LOST_NANOS && Gates.ORPHANS.latestNanos() <= silence,
                Gates.ORPHANS.latestNanos() + " ns of " + silence);
        // The agent counts from the time when it received the heartbeat; the machine may be busy.
        assertTrue(silence < TimeUnit.MILLISECONDS.toNanos(1500), silence + " ns");
        assertTrue(client.isConnected());
        packet(s, 4096, 8192).result(); // and stay open
        daemon.beating = true;
        await(() -> client.enforcing(System.nanoTime()));
        packet(s, 8192, 12_288).held();
    }

    @Test
    void anotherModeOpensGatesAtOnce() throws Exception {
        for (int mode : new int[] {Frames.OFF, Frames.OBSERVE}) {
            start(Frames.ENFORCE);
            Worker<Boolean> packet = packet(openReader(), 0, 4096).held();
            long orphaned = Gates.ORPHANS.count();
            daemon.mode = mode;
            packet.result();
            assertEquals(orphaned, Gates.ORPHANS.count()); // this daemon lives
            assertNotNull(reader(0, -1).result());
            end();
            begin();
        }
    }

    @Test
    void aLostDaemonOpensGatesAndANewOneRegainsTheStreams() throws Exception {
        start(Frames.ENFORCE);
        Stream s = openReader();
        Worker<Boolean> packet = packet(s, 3000, 7096).held();
        long orphaned = Gates.ORPHANS.count();
        daemon.close();
        packet.result();
        assertEquals(orphaned + 1, Gates.ORPHANS.count());
        Gates.read(s, 7096, 11_192);

        daemon = newDaemon(Frames.ENFORCE);
        connected();
        Heard again = daemon.next(Frames.OPEN);
        assertEquals(s.id, again.stream());
        assertEquals(7096, again.from()); // its present position
        assertEquals(1_000_000, again.to());
        await(() -> s.mark == Stream.NO_MARK);
        Worker<Boolean> next = packet(s, 11_192, 15_288).held(); // marks of the old connection are void
        daemon.mark(s.id, 20_000);
        next.result();
        assertEquals(1, client.reconnects());
    }

    @Test
    void withoutADaemonNothingWaitsAndNothingIsKept() throws Exception {
        startClient(Patience.USUAL);
        Stream gone = reader(0, -1).result();
        packet(gone, 0, 4096).result();
        Gates.close(gone, 4096, false);
        assertEquals(0, client.streamsOpen());
        Stream staying = reader(0, -1).result();
        packet(staying, 8192, 12_288).result();

        daemon = newDaemon(Frames.ENFORCE);
        connected();
        Heard open = daemon.next(Frames.OPEN);
        assertEquals(staying.id, open.stream());
        assertEquals(8192, open.from());
        assertEquals(0, client.reconnects());
    }

    private static final byte VERSION = Frames.VERSION;

    @Test
    void nonsenseFromTheDaemonEndsTheConnection() throws Exception {
        start(Frames.ENFORCE);
        Stream s = openReader();
        byte[][] nonsense = {
            {0, 12, 99, VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, // type
            {0, 17, 7, VERSION + 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0}, // version
            {0, 17, 7, VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0}, // mode
            {0, 9, 7, VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 2}, // a heartbeat of version 2
            {0, 10, 2, VERSION, 2, 0, 0, 1, 0, 0, 100, 0, 1, 1}, // one device for two directories
            {0, 13, 5, VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, // length
            {-1, -1, -1, -1}, // oversized
        };
        for (byte[] bytes : nonsense) {
            Worker<Boolean> packet = packet(s, 0, 4096).held();
            daemon.raw(bytes);
            packet.result();
            connected();
            assertEquals(s.id, daemon.next(Frames.OPEN).stream());
            await(() -> s.mark == Stream.NO_MARK);
        }
        // Half a frame is not invalid, only incomplete.
        daemon.hangUp();
        connected();
        assertEquals(nonsense.length + 1, client.reconnects());
        assertEquals(0, Gates.FAILURES.sum());
    }

    @Test
    void aMarkForNobodyIsIgnored() throws Exception {
        start(Frames.ENFORCE);
        daemon.mark(12_345, 1);
        assertNotNull(openReader());
        assertEquals(0, client.reconnects());
    }

    /** A daemon that accepts connections and does nothing else, like a stopped daemon. */
    @Test
    void aDeafDaemonHoldsNobodyUp() throws Exception {
        daemon = newDaemon(Frames.ENFORCE);
        daemon.deaf = true;
        startClient(Patience.USUAL);
        Stream s = reader(0, -1).result();
        packet(s, 0, 4096).result();
        daemon.deaf = false; // from the next connection on, within the WELCOME timeout
        connected();
        assertEquals(s.id, daemon.next(Frames.OPEN).stream());
    }

    private static Stream outputOf(String application) {
        return Gates.open(false, Gates.INTERMEDIATE, application, BLOCK, Peer.UNKNOWN, 0, 4096, null);
    }

    @Test
    void tooManyStreamsGoUngoverned() throws Exception {
        startClient(Patience.USUAL);
        List<Stream> all = new ArrayList<>();
        for (int i = 0; i < Client.MAX_STREAMS; i++) {
            all.add(outputOf("application_1700000000000_000" + i % 4));
        }
        assertFalse(all.contains(null));
        long failed = Gates.FAILED_OPENS.sum();
        assertNull(Gates.openWrite(BLOCK, META, 0));
        assertNull(reader(0, -1).result());
        assertEquals(failed + 2, Gates.FAILED_OPENS.sum());
        Gates.close(all.get(0), 0, false);
        assertNotNull(Gates.openWrite(BLOCK, META, 0));
        assertEquals(Client.MAX_STREAMS, client.streamsOpen());
    }

    /** One application cannot use all streams: there is room for another application. */
    @Test
    void oneApplicationDoesNotPushTheOthersOut() throws Exception {
        startClient(Patience.USUAL);
        long over = Gates.OVER_BOUND.sum();
        long failed = Gates.FAILED_OPENS.sum();
        List<Stream> own = new ArrayList<>();
        List<Stream> unattributed = new ArrayList<>();
        for (Stream s = outputOf("greedy"); s != null; s = outputOf("greedy")) {
            (s.flow.equals("greedy") ? own : unattributed).add(s);
        }
        assertEquals(Client.MAX_FLOW_STREAMS, own.size());
        assertEquals(Client.MAX_FLOW_STREAMS, unattributed.size());
        assertEquals("unattributed", unattributed.get(0).flow);
        assertEquals(over + Client.MAX_FLOW_STREAMS + 1, Gates.OVER_BOUND.sum());
        assertEquals(failed + 1, Gates.FAILED_OPENS.sum());
        assertEquals("modest", outputOf("modest").flow);

        // A closed stream's place is free again.
        Gates.close(own.get(0), 0, false);
        assertEquals("greedy", outputOf("greedy").flow);
        assertNull(outputOf("greedy"));
        Gates.close(unattributed.get(0), 0, false);
        assertEquals("unattributed", outputOf("greedy").flow);
    }

    /** A process with only one flow may use all streams. */
    @Test
    void aTasksOwnFlowMayHaveThemAll() throws Exception {
        client = new Client(Transport.named(transport), socket.toString(), "test", Role.TASK, "application",
                Patience.USUAL);
        Gates.install(client);
        for (int i = 0; i < Client.MAX_STREAMS; i++) {
            assertEquals("application", outputOf("application").flow);
        }
        assertNull(outputOf("application"));
    }

    /** Starts a thread that measures the longest time for which this machine ran none of its threads, in nanoseconds. */
    private static Thread pulse(AtomicLong gap) {
        Thread thread = new Thread(() -> {
            for (long last = System.nanoTime(); !Thread.currentThread().isInterrupted();) {
                LockSupport.parkNanos(1_000_000);
                long now = System.nanoTime();
                gap.accumulateAndGet(now - last, Math::max);
                last = now;
            }
        });
        thread.start();
        return thread;
    }

    /** The largest number of streams, with a socket that accepts nothing. */
    @Test
    void aFullSocketHoldsNobodyUp() throws Exception {
        start(Frames.OBSERVE);
        daemon.paused = true;
        File longPath = new File("/" + "p".repeat(4000));
        long longest = 0;
        AtomicLong gap = new AtomicLong();
        Thread pulse = pulse(gap);
        for (int i = 0; client.isConnected(); i++) {
            long before = System.nanoTime();
            Stream s = Gates.open(true, Gates.INTERMEDIATE, "flow " + i % 4, longPath, Peer.UNKNOWN, 0, 0, null);
            Gates.close(s, 1, false);
            longest = Math.max(longest, System.nanoTime() - before);
            if (s == null) {
                Thread.onSpinWait(); // all streams wait to be sent
            }
        }
        pulse.interrupt();
        pulse.join();
        assertTrue(longest < TimeUnit.MILLISECONDS.toNanos(500) + gap.get(),
                longest + " ns in one call, when another thread had no processor for at most " + gap);
        await(() -> client.streamsOpen() == 0);
        assertTrue(client.framesDropped() > 0);
        daemon.paused = false;
        await(client::isConnected);
    }

    @Test
    void aPathThatNoFrameHoldsGoesUngoverned() throws Exception {
        start(Frames.ENFORCE);
        long failed = Gates.FAILED_OPENS.sum();
        Stream s = Gates.openRead(new File("/" + "p".repeat(5000)), META, 0, -1, 4096);
        Gates.constructed();
        Gates.read(s, 0, 4096);
        assertEquals(failed + 1, Gates.FAILED_OPENS.sum());
        Gates.close(s, 4096, false);
        assertNotNull(openReader());
        assertEquals(0, client.reconnects());
    }

    @Test
    void anInterruptEndsTheWaitAndIsKept() throws Exception {
        start(Frames.ENFORCE);
        Worker<Boolean> packet = packet(openReader(), 0, 4096).held();
        packet.thread.interrupt();
        assertTrue(packet.result());
    }

    @Test
    void theBackstopEndsEveryWait() throws Exception {
        daemon = newDaemon(Frames.ENFORCE);
        startClient(new Patience(200, TimeUnit.MILLISECONDS.toNanos(300)));
        connected();
        long backstops = Gates.BACKSTOPS.sum();
        packet(openReader(), 0, 4096).held().result();
        assertEquals(backstops + 1, Gates.BACKSTOPS.sum());
    }

    @Test
    void aConstructorThatThrowsClosesItsStream() throws Exception {
        start(Frames.OBSERVE);
        Op op = Gates.enterScanner();
        Stream first = Gates.openRead(BLOCK, META, 0, -1, 4096); // and throws
        Stream second = Gates.openRead(BLOCK, META, 0, -1, 4096); // and throws too
        Gates.exit(op);
        Heard own = daemon.next(Frames.OPEN);
        assertEquals("scanner", own.flow());
        assertEquals("own", own.peer().client);
        assertTrue(daemon.next(Frames.CLOSE, h -> h.stream() == first.id).failed());
        assertTrue(daemon.next(Frames.CLOSE, h -> h.stream() == second.id).failed());
        await(() -> client.streamsOpen() == 0);
    }

    @Test
    void namesNest() throws Exception {
        start(Frames.OBSERVE);
        Op outer = Gates.enterBalancer(Peer.UNKNOWN);
        Op inner = Gates.enterClient("DFSClient_NONMAPREDUCE_1_1", Peer.UNKNOWN);
        Gates.openWrite(BLOCK, META, 0);
        assertEquals("clients", daemon.next(Frames.OPEN).flow());
        Gates.exit(inner);
        Gates.openWrite(BLOCK, META, 0);
        assertEquals("balancer", daemon.next(Frames.OPEN).flow());
        Gates.exit(outer);
        Gates.exit(null); // an entry that was suppressed
        Gates.openWrite(BLOCK, META, 0);
        assertEquals("unattributed", daemon.next(Frames.OPEN).flow());
    }

    @Test
    void aFurtherDataNodeIsToldToTheDaemon() throws Exception {
        start(Frames.OBSERVE);
        Gates.serve(List.of("/f"));
        assertEquals(List.of("/d", "/e", "/f"), daemon.next(Frames.HELLO).directories());
    }

    /** A volume that is added, removed or mounted again makes a connection with the present directories, at once. */
    @Test
    void changedVolumesAreRegistered() throws Exception {
        start(Frames.ENFORCE);
        Op op = Gates.enterClient(CLIENT, Peer.UNKNOWN);
        Stream open = Gates.openWrite(BLOCK, META, 0);
        Gates.constructed();
        Gates.exit(op);
        daemon.next(Frames.OPEN);
        long failures = client.failures();
        Gates.volumes(List.of("/d", "/e"), List.of("/d", "/f"), true);
        assertEquals(List.of("/d", "/f"), daemon.next(Frames.HELLO).directories());
        assertEquals(open.id, daemon.next(Frames.OPEN).stream());
        Gates.volumes(List.of("/d", "/f"), List.of("/d", "/f"), false); // no failed volume was removed
        Gates.volumes(List.of("/d", "/f"), List.of("/d", "/f"), true); // perhaps mounted again
        assertEquals(List.of("/d", "/f"), daemon.next(Frames.HELLO).directories());
        Gates.volumes(List.of("/d", "/f"), List.of("/d"), false);
        assertEquals(List.of("/d"), daemon.next(Frames.HELLO).directories());
        assertEquals(failures, client.failures());
        Gates.volumes(null, List.of(), true); // the advice could not read the former directories
    }

    @Test
    void whenSwitchedOffNothingHappens() throws Exception {
        Gates.install(null);
        assertNull(Gates.openRead(BLOCK, META, 0, -1, 4096));
        assertNull(Gates.openWrite(BLOCK, META, 0));
        Gates.received(null, 0);
        Gates.close(null, 0, false);
    }

    /** A stream of an event loop, with the calls of its callback. */
    private final class Loop {
        final Semaphore again = new Semaphore(0);
        final Stream stream = Gates.open(true, Gates.NETWORK, APPLICATION, BLOCK, Peer.UNKNOWN, 0, 0, again::release);

        /** Returns the number of the stream's device, after the daemon has received the OPEN. */
        int deviceNumber() throws InterruptedException {
            daemon.next(Frames.OPEN, h -> h.stream() == stream.id);
            return stream.device;
        }

        /** Waits until the client has run the callback. */
        void called() throws InterruptedException {
            assertTrue(again.tryAcquire(20, TimeUnit.SECONDS), "no callback");
        }
    }

    private Loop heldLoop() throws Exception {
        Loop loop = new Loop();
        Heard open = daemon.next(Frames.OPEN);
        assertEquals(Frames.NETWORK, open.kind());
        daemon.mark(open.stream(), 1000);
        await(() -> loop.stream.mark == 1000);
        assertTrue(Gates.mayPass(loop.stream, 0, 1000));
        assertFalse(Gates.mayPass(loop.stream, 1000, 2000));
        return loop;
    }

    @Test
    void anEventLoopIsCalledWhenTheMarkRises() throws Exception {
        start(Frames.ENFORCE);
        Loop loop = heldLoop();
        assertEquals(1000, daemon.next(Frames.PROGRESS).position()); // the position is reported before the wait
        assertEquals(0, loop.again.availablePermits());
        daemon.mark(loop.stream.id, 1500);
        loop.called();
        assertFalse(Gates.mayPass(loop.stream, 1000, 2000)); // the mark has risen, but not far enough
        long waits = Gates.WAITS.sum();
        daemon.mark(loop.stream.id, 2000);
        loop.called();
        assertTrue(Gates.mayPass(loop.stream, 1000, 2000));
        assertEquals(waits + 1, Gates.WAITS.sum());
        daemon.mark(loop.stream.id, 3000); // no thread waits for this mark
        await(() -> loop.stream.mark == 3000);
        assertEquals(0, loop.again.availablePermits());
    }

    @Test
    void anEventLoopIsCalledWhenGatesOpen() throws Exception {
        start(Frames.ENFORCE);
        Loop loop = heldLoop();
        daemon.mode = Frames.OBSERVE;
        loop.called();
        assertTrue(Gates.mayPass(loop.stream, 1000, 2000));

        daemon.mode = Frames.ENFORCE;
        await(() -> client.enforcing(System.nanoTime()));
        assertFalse(Gates.mayPass(loop.stream, 1000, 2000));
        long orphaned = Gates.ORPHANS.count();
        daemon.close();
        while (!Gates.mayPass(loop.stream, 1000, 2000)) {
            loop.called();
        }
        assertEquals(orphaned + 1, Gates.ORPHANS.count());
        assertTrue(Gates.mayPass(loop.stream, 2000, 3000));
    }

    @Test
    void anEventLoopIsCalledWithinASecondOfTheLastHeartbeat() throws Exception {
        start(Frames.ENFORCE);
        Loop loop = heldLoop();
        await(() -> daemon.lastBeat != 0);
        daemon.beating = false;
        loop.called();
        long silence = System.nanoTime() - daemon.lastBeat;
        assertTrue(silence >= Beats.LOST_NANOS && silence < TimeUnit.MILLISECONDS.toNanos(1500),
                silence + " ns");
        assertTrue(Gates.mayPass(loop.stream, 1000, 2000));
        assertTrue(Gates.mayPass(loop.stream, 2000, 3000)); // and stays open
        assertEquals(0, loop.again.availablePermits());
    }

    @Test
    void theBackstopCallsAnEventLoop() throws Exception {
        daemon = newDaemon(Frames.ENFORCE);
        startClient(new Patience(200, TimeUnit.MILLISECONDS.toNanos(300)));
        connected();
        long backstops = Gates.BACKSTOPS.sum();
        Loop loop = heldLoop();
        loop.called();
        assertEquals(backstops + 1, Gates.BACKSTOPS.sum());
        assertTrue(Gates.mayPass(loop.stream, 1000, 2000));
    }

    @Test
    void aCallbackThatThrowsHarmsNobody() throws Exception {
        start(Frames.ENFORCE);
        Semaphore ran = new Semaphore(0);
        Stream s = Gates.open(true, Gates.NETWORK, APPLICATION, BLOCK, Peer.UNKNOWN, 0, 0, () -> {
            ran.release();
            throw new IllegalStateException("on purpose");
        });
        long failures = Gates.FAILURES.sum();
        assertFalse(Gates.mayPass(s, 0, 1));
        daemon.mark(daemon.next(Frames.OPEN).stream(), 10);
        assertTrue(ran.tryAcquire(20, TimeUnit.SECONDS));
        await(() -> Gates.FAILURES.sum() == failures + 1);
        assertTrue(Gates.mayPass(s, 0, 1));
        assertNotNull(openReader());
        assertEquals(0, client.reconnects());
        Gates.FAILURES.reset();
    }

    /** Marks rise while an event loop calls mayPass. In no order of the two may the loop wait without a callback. */
    @Test
    void noCallbackIsLost() throws Exception {
        start(Frames.ENFORCE);
        Loop loop = new Loop();
        int id = daemon.next(Frames.OPEN).stream();
        for (long at = 0; at < 300; at++) {
            daemon.mark(id, at + 1);
            while (!Gates.mayPass(loop.stream, at, at + 1)) {
                loop.called();
            }
        }
    }

    @Test
    void theDaemonHearsRoleFlowAndPeer() throws Exception {
        daemon = newDaemon(Frames.OBSERVE);
        client = new Client(Transport.named(transport), socket.toString(), "test", Role.TASK, APPLICATION,
                Patience.USUAL);
        Gates.install(client);
        Gates.serve(List.of());
        Heard hello = daemon.next(Frames.HELLO);
        assertEquals(Frames.TASK, hello.role());
        assertEquals(APPLICATION, hello.flow());
        assertEquals(List.of(), hello.directories());
        Peer peer = Peer.of("/10.0.0.1:50010", "/10.0.0.2:9866", "alice");
        Op op = Gates.enterPipeline("", true, peer);
        Gates.openWrite(BLOCK, META, 0);
        Gates.exit(op);
        Heard open = daemon.next(Frames.OPEN);
        assertEquals("reconstruction", open.flow());
        assertEquals("10.0.0.1:50010 10.0.0.2:9866 alice",
                open.peer().client + " " + open.peer().server + " " + open.peer().user);
        assertEquals(Frames.PERSISTENT, open.kind());
    }

    @Test
    void theFirstPlugInConnects() throws Exception {
        daemon = newDaemon(Frames.OBSERVE);
        List<String> said = Collections.synchronizedList(new ArrayList<>());
        try {
            assertNull(Gates.connect(socket.toString(), Role.EXECUTOR, APPLICATION, List.of("/l"), said::add));
            assertNull(Gates.connect("/other", Role.TASK, "other", List.of("/l"), said::add));
            Heard hello = daemon.next(Frames.HELLO);
            assertEquals(Frames.EXECUTOR, hello.role());
            assertEquals(List.of("/l"), hello.directories());
            await(() -> said.contains("mode is observe"));
        } finally {
            client = Gates.installed();
            Log.to(message -> System.err.println("penstock-agent: " + message));
        }
    }

    private static Stream openedWrite(String path) {
        return Gates.open(true, Gates.INTERMEDIATE, APPLICATION, new File(path), Peer.UNKNOWN, 0, 0, null);
    }

    private Worker<Void> heldWriter(String path) throws Exception {
        Stream s = openedWrite(path);
        daemon.mark(daemon.next(Frames.OPEN, h -> h.stream() == s.id).stream(), 1000);
        await(() -> s.mark == 1000);
        return new Worker<Void>(() -> {
            Gates.pass(s, 1000, 2000);
            return null;
        }).held();
    }

    @Test
    void aStalledDeviceOpensItsOwnGatesOnly() throws Exception {
        start(Frames.ENFORCE);
        Worker<Void> d = heldWriter("/d/blk_1");
        Worker<Void> e = heldWriter("/e/blk_2");
        Worker<Void> elsewhere = heldWriter("/f/blk_3"); // on no known device, so it depends on all devices
        Loop network = heldLoop();
        long stalledWaits = Gates.STALLED_WAITS.sum();
        long orphaned = Gates.ORPHANS.count();
        daemon.alive = ~(1L << 1);
        d.result();
        elsewhere.result();
        e.held();
        assertFalse(Gates.mayPass(network.stream, 1000, 2000));
        assertEquals(stalledWaits + 2, Gates.STALLED_WAITS.sum());
        assertEquals(orphaned, Gates.ORPHANS.count()); // the daemon lives
        await(() -> client.stalls() == 1);
        assertTrue(client.enforcing(System.nanoTime()));

        // The device lives again, and the network does not.
        daemon.alive = ~(1L << Frames.NETWORK_DEVICE);
        while (!Gates.mayPass(network.stream, 1000, 2000)) {
            network.called();
        }
        Stream again = openedWrite("/d/blk_4");
        await(() -> client.enforcing(again, System.nanoTime()));
        heldWriter("/d/blk_5");
        e.held();
    }

    @Test
    void aStreamIsOfItsLongestGovernedDirectory() throws Exception {
        daemon = newDaemon(Frames.ENFORCE);
        daemon.devices = new byte[] {3, 63, 0, 3};
        client = new Client(Transport.named(transport), socket.toString(), "test", Role.DATANODE, "", Patience.USUAL);
        Gates.install(client);
        Gates.serve(List.of("/a", "/a/b/", "/a/b/c", "/d"));
        await(client::isConnected);
        assertEquals(3, deviceOf("/a/blk_1"));
        assertEquals(63, deviceOf("/a/b/blk_1"));
        assertEquals(63, deviceOf("/a/b/c/blk_1")); // as the daemon finds it, which does not govern /a/b/c
        assertEquals(3, deviceOf("/a/bc/blk_1"));
        assertEquals(3, deviceOf("/d/blk_1"));
        assertEquals(Beats.ALL, deviceOf("/dd/blk_1"));
        assertEquals(Beats.ALL, deviceOf("/d"));
        assertEquals(Frames.NETWORK_DEVICE, new Loop().deviceNumber());
    }

    /** Device 1 has /d, and device 2 has /e. */
    private void startFree() throws Exception {
        start(Frames.ENFORCE);
        daemon.free = 1 << 1;
        await(() -> isFree(BLOCK));
    }

    private boolean isFree(File file) {
        return client.isFree(Frames.PERSISTENT, file);
    }

    @Test
    void aSmallReadOnAFreeDeviceDoesNotWait() throws Exception {
        startFree();
        long passed = Gates.PASSED.sum();
        Stream s = reader(512, Frames.MAX_PASSING).result();
        Heard open = daemon.next(Frames.OPEN);
        assertTrue(open.passing());
        assertFalse(open.refusable());
        assertEquals(512, open.from());
        assertEquals(512 + Frames.MAX_PASSING, open.to());
        assertFalse(packet(s, 512, 512 + Frames.MAX_PASSING).result());
        Gates.close(s, 512 + Frames.MAX_PASSING, false);
        assertEquals(512 + Frames.MAX_PASSING, daemon.next(Frames.CLOSE).position());
        assertEquals(passed + 1, Gates.PASSED.sum());
    }

    /** A turn is asked for even if a device is free, because it is at another one. */
    @Test
    void aTurnWaits() throws Exception {
        startFree();
        File mount = new File("/d");
        for (boolean write : new boolean[] {false, true}) {
            Worker<Stream> turn = new Worker<>(() -> Gates.takeTurn(write, APPLICATION, mount, "brick1.example.com",
                    4096)).held();
            Heard open = daemon.next(Frames.OPEN);
            assertFalse(open.passing());
            assertEquals(write, open.write());
            assertEquals("brick1.example.com", open.peer().server);
            assertEquals(0, open.from());
            assertEquals(4096, open.to());
            daemon.mark(open.stream(), Long.MAX_VALUE);
            assertTrue(Gates.hasTurn(turn.result()));
            Gates.endTurn(turn.result());
            assertEquals(4096, daemon.next(Frames.CLOSE).position());
        }
        for (String name : List.of("", "two words", "x".repeat(Frames.MAX_ADDRESS + 1), "\u00e4", "a\0")) {
            assertNull(Gates.takeTurn(false, APPLICATION, mount, name, 4096));
        }
        Worker<Stream> late = new Worker<>(() -> Gates.takeTurn(false, APPLICATION, mount, "brick1", 4096)).held();
        daemon.beating = false;
        assertFalse(Gates.hasTurn(late.result()), "the daemon is silent, and the wait is over");
    }

    @Test
    void aLongerReadOnAFreeDeviceWaits() throws Exception {
        startFree();
        Worker<Stream> longer = reader(0, Frames.MAX_PASSING + 1).held();
        Heard open = daemon.next(Frames.OPEN);
        assertFalse(open.passing());
        daemon.mark(open.stream(), 0);
        longer.result();
    }

    @Test
    void beyondABoundOfOpenStreamsSmallReadsWait() throws Exception {
        startFree();
        List<Stream> all = new ArrayList<>();
        for (int i = 0; i < Client.MAX_STREAMS_WITH_PASSING; i++) {
            all.add(reader(0, 4096).result());
            assertTrue(daemon.next(Frames.OPEN).passing());
        }
        Worker<Stream> further = reader(0, 4096).held();
        Heard open = daemon.next(Frames.OPEN);
        assertFalse(open.passing());
        daemon.mark(open.stream(), 4096);
        Gates.close(further.result(), 4096, false);
        Gates.close(all.get(0), 4096, false);
        await(() -> client.streamsOpen() == Client.MAX_STREAMS_WITH_PASSING - 1);
        reader(0, 4096).result();
        assertTrue(daemon.next(Frames.OPEN).passing());
    }

    /** A thread that reads faster than the client's thread sends. */
    @Test
    void smallReadsDoNotFillTheQueue() throws Exception {
        startFree();
        daemon.generous = true;
        int most = 0;
        for (int i = 0; i < 2 * Client.MAX_STREAMS; i++) {
            await(() -> isFree(BLOCK)); // without heartbeats, gates are open
            Stream s = outputOf(APPLICATION);
            Gates.pass(s, 0, 4096);
            most = Math.max(most, client.streamsOpen());
            Gates.close(s, 4096, false);
        }
        assertTrue(most <= 2 * Client.MAX_STREAMS_WITH_PASSING, most + " streams are open");
        await(() -> client.streamsOpen() == 0);
    }

    @Test
    void aDeviceThatIsNoLongerFreeHoldsSmallReads() throws Exception {
        startFree();
        assertFalse(isFree(new File("/e/blk_1")), "only the other device is free");
        assertFalse(isFree(new File("/x/blk_1")), "a file on an unknown device, of which one is not free");
        daemon.free = 0;
        daemon.beatNow();
        await(() -> !isFree(BLOCK));
        reader(0, 4096).held();
        assertFalse(daemon.next(Frames.OPEN).passing());
    }

    @Test
    void aDeviceWithoutHeartbeatsIsNotFree() throws Exception {
        startFree();
        daemon.beating = false;
        await(() -> !isFree(BLOCK));
        assertTrue(System.nanoTime() - client.lastHeartbeat() >= Beats.LOST_NANOS);
        reader(0, 4096).result(); // gates are open
        assertFalse(daemon.next(Frames.OPEN).passing());
    }

    @Test
    void aNewConnectionKnowsNoFreeDevice() throws Exception {
        startFree();
        daemon.free = 0;
        daemon.hangUp();
        await(() -> client.reconnects() == 1);
        assertFalse(isFree(BLOCK));
    }

    @Test
    void noReadPassesInObserveMode() throws Exception {
        start(Frames.OBSERVE);
        daemon.free = 1 << 1;
        long before = client.lastHeartbeat();
        daemon.beatNow();
        await(() -> client.lastHeartbeat() > before);
        assertFalse(isFree(BLOCK));
        Stream s = reader(0, 4096).result();
        assertFalse(daemon.next(Frames.OPEN, h -> h.stream() == s.id).passing());
    }

    @Test
    void aDeviceIsFreeUntilItsHeartbeatsAreTooOld() {
        Beats beats = new Beats();
        beats.begin(new byte[] {1}, 0);
        assertFalse(beats.isFree(1, 0));
        beats.beat(2, 2, 0);
        assertTrue(beats.isFree(1, Beats.LOST_NANOS - 1));
        assertTrue(beats.isFree(Beats.ALL, Beats.LOST_NANOS - 1));
        assertFalse(beats.isFree(1, Beats.LOST_NANOS));
        assertFalse(beats.isFree(2, 0));
    }

    private int deviceOf(String path) throws Exception {
        Stream s = openedWrite(path);
        daemon.next(Frames.OPEN, h -> h.stream() == s.id);
        return s.device;
    }

    @Test
    void theDaemonHearsWhatTheClientBears() throws Exception {
        daemon = newDaemon(Frames.OBSERVE);
        client = new Client(Transport.named(transport), socket.toString(), "test", Role.DATANODE, "", Patience.USUAL);
        Gates.install(client);
        Gates.serve(List.of("/d"), 4096, 120_000, 5_000);
        assertEquals(4096, daemon.next(Frames.HELLO).threads());
        await(client::isConnected);
        Op op = Gates.enterRead(CLIENT, Peer.UNKNOWN);
        Gates.openRead(BLOCK, META, 0, -1, 4096);
        Heard open = daemon.next(Frames.OPEN);
        assertEquals(90_000, open.patience());
        assertTrue(open.refusable());
        Gates.exit(op);
        op = Gates.enterRead("", Peer.UNKNOWN);
        Gates.openRead(new File("/d/blk_-9223372036854775792"), META, 0, -1, 4096);
        open = daemon.next(Frames.OPEN);
        assertEquals(3_000, open.patience());
        assertFalse(open.refusable());
        Gates.openRead(BLOCK, META, 0, -1, 4096); // no striped block
        assertEquals(90_000, daemon.next(Frames.OPEN).patience());
        Gates.exit(op);
        op = Gates.enterScanner();
        Gates.openRead(BLOCK, META, 0, -1, 4096);
        open = daemon.next(Frames.OPEN);
        assertEquals("scanner", open.flow());
        assertFalse(open.refusable()); // the scanner would report a refused block as bad
        Gates.openWrite(BLOCK, META, 0);
        assertFalse(daemon.next(Frames.OPEN).refusable());
        Gates.exit(op);
        Gates.serve(List.of("/e"), 1024, 60_000, 50_000); // a second DataNode: the smallest of each value applies
        assertEquals(1024, daemon.next(Frames.HELLO).threads());
        assertEquals(45_000, client.usual().millis);
        assertEquals(3_000, client.striped().millis);
    }

    @Test
    void patienceIsShortOfTheClients() {
        int[][] cases = {{60_000, 45_000, 55_000}, {5_000, 3_000, 4_500}, {8_000, 6_000, 7_334}, {4_000, 2_000, 3_500},
            {2_000, 1_000, 1_500}, {1_000, 500, 500}, {180_000, 135_000, 165_000}, {0, 45_000, 55_000},
            {Integer.MAX_VALUE, 2_700_000, 3_300_000}};
        for (int[] c : cases) {
            Patience p = Patience.of(c[0]);
            assertEquals(c[1], p.millis, c[0] + " ms");
            assertEquals(TimeUnit.MILLISECONDS.toNanos(c[2]), p.ceilingNanos, c[0] + " ms");
        }
    }

    /** The time-out of the pipeline's next DataNode started at the last packet. */
    @Test
    void aWritersPatienceBeginsWithItsLastPacket() throws Exception {
        daemon = newDaemon(Frames.ENFORCE);
        startClient(new Patience(3_600_000, TimeUnit.HOURS.toNanos(1)));
        connected();
        Stream s = Gates.openWrite(BLOCK, META, 0);
        daemon.next(Frames.OPEN);
        Worker<Void> first = new Worker<>(() -> {
            Gates.packet(s);
            return null;
        });
        first.held();
        daemon.mark(s.id, 1);
        first.result();
        Gates.received(s, 1);
        s.written -= TimeUnit.MINUTES.toNanos(60);
        long backstops = Gates.BACKSTOPS.sum();
        Gates.packet(s); // otherwise the packet would wait for an hour
        assertEquals(backstops + 1, Gates.BACKSTOPS.sum());
    }

    @Test
    void aRefusedReadEndsAtItsFirstWait() throws Exception {
        start(Frames.ENFORCE);
        long refusals = Gates.REFUSALS.sum();
        Worker<String> refused = new Worker<>(() -> {
            Op op = Gates.enterRead(CLIENT, Peer.UNKNOWN);
            try {
                Stream s = Gates.openRead(BLOCK, META, 1024, -1, 4096);
                if (!Gates.isRefused(s)) {
                    return "not refused";
                }
                Refusal e = Gates.refusal(s);
                assertEquals(0, e.getStackTrace().length); // Hadoop logs each exception, and there may be many
                return e.getMessage();
            } finally {
                Gates.exit(op);
            }
        }).held();
        Heard open = daemon.next(Frames.OPEN);
        daemon.mark(open.stream(), Frames.REFUSED);
        assertTrue(refused.result().contains(APPLICATION));
        Heard close = daemon.next(Frames.CLOSE);
        assertEquals(open.stream(), close.stream());
        assertEquals(1024, close.position());
        assertTrue(close.failed());
        assertEquals(refusals + 1, Gates.REFUSALS.sum());
    }

    @Test
    void aRefusalThatComesTooLateOrToNobodyChangesNothing() throws Exception {
        start(Frames.ENFORCE);
        Worker<Stream> reader = new Worker<>(() -> {
            Op op = Gates.enterRead(CLIENT, Peer.UNKNOWN);
            Stream s = Gates.openRead(BLOCK, META, 0, -1, 4096);
            Gates.constructed();
            Gates.exit(op);
            return s;
        }).held();
        Heard open = daemon.next(Frames.OPEN);
        assertTrue(open.refusable());
        daemon.mark(open.stream(), 0);
        Stream s = reader.result();
        daemon.mark(open.stream(), Frames.REFUSED);
        Worker<Boolean> packet = packet(s, 0, 4096);
        await(() -> s.refused);
        packet.held();
        assertFalse(Gates.isRefused(s));
        daemon.mark(open.stream(), 4096);
        packet.result();

        Worker<Void> writer = heldWriter("/d/spill");
        daemon.mark(openedWrite("/d/other").id, Frames.REFUSED);
        writer.held();
        assertFalse(Gates.isRefused(null));
    }

    /** Each kind of failure is logged in one line, however often it occurs, and the pauses between attempts grow. */
    @Test
    void aDaemonThatRefusesIsSaidOnce() throws Exception {
        List<String> said = Collections.synchronizedList(new ArrayList<>());
        Log.to(said::add);
        try {
            daemon = newDaemon(Frames.ENFORCE);
            daemon.refusing = true;
            long begun = System.nanoTime();
            startClient(Patience.USUAL);
            await(() -> daemon.refused >= 5);
            assertTrue(System.nanoTime() - begun >= TimeUnit.MILLISECONDS.toNanos(200 + 400 + 800 + 1600));
            assertEquals(1, said.size(), said.toString());
            assertTrue(said.get(0).contains("refused this agent"), said.toString());
            assertTrue(client.failures() >= 4);
            assertFalse(client.isConnected());
        } finally {
            Log.to(message -> System.err.println("penstock-agent: " + message));
        }
    }

    @Test
    void linesAreSaidOnceUntilItIsOver() {
        List<String> said = new ArrayList<>();
        Log.to(said::add);
        try {
            Log.Once once = new Log.Once();
            assertFalse(once.isQuiet());
            for (int i = 0; i < 3 * Log.Once.MAX_LINES; i++) {
                assertEquals(i < Log.Once.MAX_LINES, once.say("reason " + i));
                assertFalse(once.say("reason " + i));
            }
            assertEquals(Log.Once.MAX_LINES, said.size());
            assertEquals(6 * Log.Once.MAX_LINES, once.count());
            assertTrue(once.isQuiet());
            once.forget();
            assertTrue(once.say("reason 0"));
        } finally {
            Log.to(message -> System.err.println("penstock-agent: " + message));
        }
    }
}
