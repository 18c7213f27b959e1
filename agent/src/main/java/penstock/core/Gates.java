package penstock.core;

import java.io.File;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;

/**
 * The entry points for the instrumented methods and the plug-ins. The host's threads run this code, so the rules are:
 * never throw by mistake, never take a lock, never touch the socket, and wait only in {@link #await}. That wait ends if
 * the daemon does not enforce, if it has sent no heartbeat for a second, or none for the stream's device, if the thread
 * is interrupted, or shortly before the stream's client would give up ({@link Patience}). The only exception that this
 * class passes to Hadoop is a {@link Refusal}, at a place where Hadoop throws a similar exception.
 *
 * <p>The daemon does the device I/O (in IBIS, section 4, the scheduler blocks the issuing thread; here the scheduler
 * only keeps the thread behind the staged pages, or near the drained pages). So a thread that waits here holds no
 * device slot, and a packet without a wait costs one volatile read and one volatile write.
 *
 * <p>The callers hold no dataset lock: BlockSender's constructor is entered from DataXceiver.readBlock and copyBlock,
 * DataTransfer.run and VolumeScanner.scanBlock, before it takes the lock itself; sendPacket runs long after the lock
 * was released; a received packet passes its gate in receivePacket, after recoverRbw or append has returned. These two
 * methods write under the dataset's lock and are not instrumented. The callers hold only a reference to the volume, as
 * during the I/O itself.
 *
 * <p>The classes are public for the inlined advice, which runs in Hadoop's packages. The agent's jar is on the system
 * class path, where a DataNode's class loader finds them.
 */
public final class Gates {
    private static final long RECHECK_NANOS = TimeUnit.MILLISECONDS.toNanos(100);
    /**
     * The largest number of strides between two reports: first of a stream that is far from its mark, second of a read
     * with an open mark. A message costs the DataNode 10 us of CPU time; a read from the page cache costs 80 us per
     * MiB.
     */
    static final int FAR_STRIDES = 4;
    static final int OPEN_READ_STRIDES = 32;
    /**
     * HDFS has a checksum for each chunk of 512 bytes, unless configured otherwise. A chunk is smaller than any page.
     */
    private static final long CHUNK = 512;

    static final LongAdder WAITS = new LongAdder();
    static final LongAdder WAIT_NANOS = new LongAdder();
    static final LongAdder BACKSTOPS = new LongAdder();
    static final LongAdder STALLED_WAITS = new LongAdder();
    static final LongAdder PASSED = new LongAdder();
    static final LongAdder REFUSALS = new LongAdder();
    static final Orphans ORPHANS = new Orphans();
    static final LongAdder FAILED_OPENS = new LongAdder();
    static final LongAdder OVER_BOUND = new LongAdder();
    public static final LongAdder FAILURES = new LongAdder();
    public static final LongAdder SHUFFLE_UNGOVERNED = new LongAdder();

    private static final ThreadLocal<Op> CURRENT = new ThreadLocal<>();
    /** Null until the agent has instrumented the classes, and again after it has switched itself off. */
    private static volatile Client client;
    /** True after the agent has switched itself off; plug-ins then do not connect either. */
    private static volatile boolean off;

    private Gates() { }

    public static synchronized void install(Client c) {
        client = c;
        off = false;
    }

    public static Client installed() {
        return client;
    }

    /** Switches off permanently: open streams are released, and this process sends nothing more to the daemon. */
    public static synchronized void switchOff() {
        Client c = client;
        client = null;
        off = true;
        if (c != null) {
            c.quit();
        }
    }

    /** Handles exceptions of the advice: counts them, and logs the first one. */
    public static void failed(Throwable t) {
        if (FAILURES.sum() == 0) {
            Log.say("exception suppressed; the I/O continued ungoverned: " + t);
        }
        FAILURES.increment();
    }

    // ---- the process

    /** Called before a server starts to serve. The HELLO to the daemon contains the server's directories. */
    public static void serve(List<String> directories) {
        Client c = client;
        if (c != null) {
            c.serve(directories);
        }
    }

    /**
     * For a plug-in: starts to connect, unless this process has done so already. The first call determines socket, role
     * and flow.
     *
     * @param flow the process's only flow
     * @param say receives the few log lines
     * @return the reason why this process is not governed, or null
     */
    public static synchronized String connect(String socket, Role role, String flow, List<String> directories,
            Consumer<String> say) {
        if (off) {
            return "the agent has switched itself off";
        }
        if (client == null) {
            Transport transport;
            try {
                transport = Transport.named(System.getProperty(Transport.PROPERTY));
            } catch (RuntimeException e) {
                return e.getMessage();
            }
            String obstacle = transport.obstacle(socket);
            if (obstacle != null) {
                return obstacle;
            }
            Log.to(say);
            Client c = new Client(transport, socket, Client.agent(), role, flow, Patience.USUAL);
            c.quitAtExit();
            client = c;
        }
        client.serve(directories);
        return null;
    }

    /**
     * Called before a DataNode starts to serve, with the largest number of threads for its operations, and the
     * time-outs in milliseconds of its clients and of DataNodes that reconstruct striped blocks.
     */
    public static void serve(List<String> directories, int threads, int timeoutMillis, int stripedMillis) {
        Client c = client;
        if (c != null) {
            c.bounds(Math.max(1, threads), Patience.of(timeoutMillis), Patience.of(stripedMillis));
            c.serve(directories);
        }
    }

    /**
     * Called with the former and the present directories of a running DataNode when its volumes have changed. If they
     * are the same, the daemon examines them again only if {@code again} is set.
     */
    public static void volumes(List<String> before, List<String> now, boolean again) {
        Client c = client;
        if (c != null && before != null && (again || !before.equals(now))) {
            c.replace(before, now);
        }
    }

    // ---- naming

    public static Op enterRead(String name, Peer peer) {
        boolean reconstructs = name != null && name.isEmpty();
        return enter(Names.ofRead(name), peer, reconstructs, !reconstructs);
    }

    public static Op enterClient(String name, Peer peer) {
        return enter(Names.ofClient(name), peer);
    }

    public static Op enterPipeline(String name, boolean reconstructs, Peer peer) {
        return enter(Names.ofPipeline(name, reconstructs), peer);
    }

    public static Op enterBalancer(Peer peer) {
        return enter(Names.BALANCER, peer);
    }

    public static Op enterScanner() {
        return enter(Names.SCANNER, Peer.OWN);
    }

    static Op enter(String flow, Peer peer) {
        return enter(flow, peer, false, false);
    }

    private static Op enter(String flow, Peer peer, boolean reconstructs, boolean refusable) {
        Op op = new Op(flow, peer, reconstructs, refusable, CURRENT.get());
        CURRENT.set(op);
        return op;
    }

    /** Restores the previous name, and closes a stream that a failed constructor left open. */
    public static void exit(Op op) {
        if (op == null) {
            return;
        }
        abandon(op);
        if (op.outer == null) {
            CURRENT.remove();
        } else {
            CURRENT.set(op.outer);
        }
    }

    private static Op current() {
        Op op = CURRENT.get();
        return op != null ? op : enter(Names.UNATTRIBUTED, Peer.UNKNOWN);
    }

    private static void abandon(Op op) {
        Stream left = op.pending;
        op.pending = null;
        if (left != null) {
            close(left, left.position, true);
        }
    }

    // ---- reads

    /**
     * Announces a read before its meta file is opened, and waits until the daemon has staged the meta file. A small
     * read on a free device does not wait, here or later. A negative length means to the end.
     *
     * @return null if the read is not governed
     */
    public static Stream openRead(File block, File meta, long start, long length, long onDisk) {
        Client c = client;
        Op op = current();
        abandon(op);
        long from = start - start % CHUNK;
        long to = onDisk;
        if (length >= 0 && start + length < onDisk) {
            to = Math.min(onDisk, (start + length + CHUNK - 1) / CHUNK * CHUNK);
        }
        if (c == null || start < 0 || from >= to) {
            return null; // nothing to read, or a request that the constructor refuses
        }
        // Striped blocks have negative numbers.
        Patience patience = op.reconstructs && block.getName().startsWith("blk_-") ? c.striped() : c.usual();
        Stream s = c.open(false, Frames.PERSISTENT, op.flow, block, meta, op.peer, from, to, patience, op.refusable,
                null);
        if (s == null) {
            FAILED_OPENS.increment();
            return null;
        }
        op.pending = s;
        if (s.mark < from) {
            await(c, s, from, true);
        }
        return s;
    }

    /** Reports, after {@link #openRead}, whether the operation must end here, before any data is moved. */
    public static boolean isRefused(Stream s) {
        Client c = client;
        return s != null && s.refused && s.mark < s.from && c != null && c.enforcing(s, System.nanoTime());
    }

    /** Returns the exception for a refused operation. */
    public static Refusal refusal(Stream s) {
        REFUSALS.increment();
        return new Refusal(s.flow);
    }

    /** Called when the constructor has returned: from now on the stream belongs to the constructed object. */
    public static void constructed() {
        current().pending = null;
    }

    /** Lets the packet [offset, end) pass once it is staged. */
    public static void read(Stream s, long offset, long end) {
        Client c = client;
        if (c == null) {
            return;
        }
        report(c, s, offset);
        // With chunks of over 512 bytes, a read may go slightly beyond the announced range; the daemon does not stage
        // that part, so no thread may wait for it.
        long need = Math.min(end, s.to);
        if (s.mark < need) {
            await(c, s, need, false);
        }
    }

    // ---- writes

    /** Announces a write; its end is not known yet. */
    public static Stream openWrite(File block, File meta, long onDisk) {
        Client c = client;
        if (c == null) {
            return null;
        }
        Op op = current();
        Stream s = c.open(true, Frames.PERSISTENT, op.flow, block, meta, op.peer, onDisk, 0, c.usual(),
                false, null);
        if (s == null) {
            FAILED_OPENS.increment();
        }
        return s;
    }

    public static void receiving(Stream s) {
        if (s != null) {
            current().writing = s;
        }
    }

    /** The write whose next packet this thread waits for, if any. */
    public static Stream writing() {
        Op op = CURRENT.get();
        return op == null ? null : op.writing;
    }

    /**
     * Called when a packet with data is in memory, before it is forwarded or written. A wait here, and not before the
     * packet is received, lets heartbeats and the block's last, empty packet pass, so that no close and no pipeline
     * depends on the daemon.
     */
    public static void packet(Stream s) {
        Client c = client;
        if (c != null && s.position >= s.mark) {
            await(c, s, s.position + 1, false);
        }
    }

    /** Called when a packet has been written, or when its receipt has failed. */
    public static void received(Stream s, long onDisk) {
        Op op = CURRENT.get();
        if (op != null) {
            op.writing = null;
        }
        Client c = client;
        if (s != null && c != null) {
            s.written = c.lastHeartbeat(); // at most one interval ago, and cheaper to get than the present time
            report(c, s, onDisk);
        }
    }

    // ---- streams of any kind, for plug-ins and event loops

    /** Kinds of a stream's bytes. */
    public static final int INTERMEDIATE = Frames.INTERMEDIATE;
    public static final int NETWORK = Frames.NETWORK;

    /**
     * Announces a file that is written, read or sent, and does not wait.
     *
     * @param to the end of a read or of the bytes to send; 0 for a write with unknown end
     * @param again null if a thread will wait in {@link #pass}. Otherwise a callback: the client's thread runs it once
     * after each {@link #mayPass} that returned false, when the mark has risen or gates are open. It must not block,
     * and has to call mayPass again
     * @return null if the stream is not governed
     */
    public static Stream open(boolean write, int kind, String flow, File file, Peer peer, long from, long to,
            Runnable again) {
        Client c = client;
        if (c == null) {
            return null;
        }
        Stream s = c.open(write, kind, flow, file, null, peer, from, to, c.usual(), false, again);
        if (s == null) {
            FAILED_OPENS.increment();
        }
        return s;
    }

    /** Reports the thread's position, and returns when the mark has reached need, or gates are open. */
    public static void pass(Stream s, long position, long need) {
        Client c = client;
        if (c == null) {
            return;
        }
        report(c, s, position);
        if (s.mark < need) {
            await(c, s, need, false);
        }
    }

    /** Like {@link #pass}, but only reports the position and does not wait. */
    public static void passed(Stream s, long position) {
        Client c = client;
        if (c != null) {
            report(c, s, position);
        }
    }

    /**
     * Called before the file of s is renamed: waits until the daemon has opened the file, at most the given
     * nanoseconds, whether gates hold or not. The daemon opens files by name, and answers when it has done so.
     */
    public static void opened(Stream s, long atMost) {
        Client c = client;
        if (c == null || s.mark != Stream.NO_MARK) {
            return;
        }
        Thread self = Thread.currentThread();
        long start = System.nanoTime();
        s.waiting(self);
        try {
            for (long left = atMost; left > 0 && s.mark == Stream.NO_MARK && !s.isClosed() && !self.isInterrupted()
                    && !c.isLost(System.nanoTime()) && c.mode() != Frames.OFF;
                    left = start + atMost - System.nanoTime()) {
                LockSupport.parkNanos(s, Math.min(left, RECHECK_NANOS));
            }
        } finally {
            s.waiting(null);
        }
    }

    /** Like {@link #pass}, for a stream with a callback: reports whether it may continue, and does not wait. */
    public static boolean mayPass(Stream s, long position, long need) {
        Client c = client;
        if (c == null) {
            return true;
        }
        report(c, s, position);
        if (passes(c, s, need)) {
            return true;
        }
        reportNow(c, s);
        if (s.heldSince == 0) {
            s.heldSince = System.nanoTime() | 1;
        }
        s.hold();
        // The last MARK may have come before the callback was set.
        return passes(c, s, need);
    }

    /**
     * Returns, after {@link #mayPass} returned true, the position up to which s may go. If gates hold, this is at least
     * the need that was given to mayPass.
     */
    public static long reach(Stream s) {
        Client c = client;
        return c != null && c.enforcing(s, System.nanoTime()) ? s.mark : Long.MAX_VALUE;
    }

    private static boolean passes(Client c, Stream s, long need) {
        if (s.mark < need && !s.isClosed() && c.enforcing(s, System.nanoTime())) {
            return false;
        }
        letGo(c, s);
        return true;
    }

    /** Ends the wait of a stream with a callback. */
    private static void letGo(Client c, Stream s) {
        long since = s.heldSince;
        if (since != 0) {
            s.letGo();
            s.heldSince = 0;
            waited(c, s, since);
        }
    }

    private static void waited(Client c, Stream s, long start) {
        long end = System.nanoTime();
        WAITS.increment();
        WAIT_NANOS.add(end - start);
        if (c.isLost(end)) {
            ORPHANS.ended(start, end, c.lastHeartbeat());
        } else if (c.isStalled(s, end)) {
            STALLED_WAITS.increment();
        }
    }

    // ---- turns at storage servers, for plug-ins

    /**
     * Asks the daemon for a turn: permission for one read or write of that many bytes on the disk of a storage server.
     * Waits for it as {@link #pass} does. The caller must call {@link #endTurn} after its read or write.
     *
     * @param mount a folder of the file system
     * @param server the server's name
     * @return the turn; null if there is no daemon to ask
     */
    public static Stream takeTurn(boolean write, String flow, File mount, String server, long bytes) {
        Client c = client;
        if (c == null || !c.isConnected()) {
            return null;
        }
        Peer peer = Peer.storage(server);
        Stream s = peer == null ? null
                : c.open(write, Frames.PERSISTENT, flow, mount, null, peer, 0, bytes, c.usual(), false, null);
        if (s == null) {
            FAILED_OPENS.increment();
            return null;
        }
        if (s.mark < bytes) {
            await(c, s, bytes, false);
        }
        return s;
    }

    /** Reports whether the daemon has given the turn. If not, the wait ended for another reason. */
    public static boolean hasTurn(Stream s) {
        return s.mark >= s.to;
    }

    /** Ends a turn. */
    public static void endTurn(Stream s) {
        close(s, s.to, false);
    }

    // ---- all

    public static void close(Stream s, long position, boolean failed) {
        Client c = client;
        if (s == null || !s.close()) {
            return;
        }
        s.position = Math.max(position, s.from);
        s.failed = failed;
        if (c != null) {
            letGo(c, s);
            c.closed(s);
        }
    }

    private static void report(Client c, Stream s, long position) {
        s.position = position;
        if (position - s.reported >= distance(s, c.stride())) {
            s.reported = position;
            c.touch(s);
        }
    }

    /**
     * Bytes after which a stream reports its position: half of the way to its mark. If a read's mark is open, the
     * thread has nothing left to wait for and the daemon has nothing to fetch. A write with an open mark must still be
     * drained.
     */
    private static long distance(Stream s, long stride) {
        long mark = s.mark;
        if (mark == Long.MAX_VALUE) {
            return stride * (s.write ? FAR_STRIDES : OPEN_READ_STRIDES);
        }
        return Math.min(FAR_STRIDES * stride, Math.max(stride, (mark - s.reported) / 2));
    }

    /**
     * A thread that is about to wait must report its position regardless of the stride. Otherwise daemon and thread
     * might wait for each other.
     */
    private static void reportNow(Client c, Stream s) {
        if (s.position > s.reported) {
            s.reported = s.position;
            c.touch(s);
        }
    }

    /**
     * Waits until the mark reaches need. In the operation's first wait, a refusal by the daemon ends the wait as well.
     */
    private static void await(Client c, Stream s, long need, boolean first) {
        if (s.passing) {
            return;
        }
        long start = System.nanoTime();
        if (!c.enforcing(s, start)) {
            return;
        }
        reportNow(c, s);
        Thread self = Thread.currentThread();
        s.waiting(self);
        try {
            // The time-out of the next DataNode in a write's pipeline started at the last packet, not at the arrival of
            // this packet. Heartbeats pass, but the client may not have sent any meanwhile.
            long end = (s.written == 0 ? start : s.written) + s.patience.ceilingNanos;
            long now = start;
            while (s.mark < need && !(first && s.refused) && !self.isInterrupted() && !s.isClosed()) {
                long left = Math.min(c.enforcedFor(s, now), end - now);
                if (left <= 0) {
                    if (end - now <= 0) {
                        BACKSTOPS.increment();
                        s.mark(Long.MAX_VALUE); // until the daemon's next MARK, further packets do not wait
                    }
                    break;
                }
                LockSupport.parkNanos(s, Math.min(left, RECHECK_NANOS));
                now = System.nanoTime();
            }
        } finally {
            s.waiting(null);
            waited(c, s, start);
        }
    }
}
