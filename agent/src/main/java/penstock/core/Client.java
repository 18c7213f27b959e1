package penstock.core;

import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * The connection to the daemon. A single background thread with a selector, the client's thread, does all the work. It
 * shares only volatile fields and two concurrent collections with the host's threads.
 *
 * <p>The queue holds streams, not frames: when a stream's turn comes, the client's thread sends all of the stream's
 * news to the daemon (OPEN, PROGRESS, CLOSE, in this order). So a stream is in the queue at most once, progress
 * coalesces by itself, the queue is bounded by the number of streams, and after a reconnect it is enough to queue every
 * stream again. The host's threads never wait for room in the queue.
 *
 * <p>Waiting threads check by themselves whether gates hold. They read the mode and the time of the last heartbeat, so
 * gates open even if the client's thread is dead.
 */
public final class Client implements Runnable {
    /**
     * A connection ends if the socket accepts nothing for this long, or if WELCOME has not arrived within this time.
     */
    static final long STUCK_NANOS = TimeUnit.SECONDS.toNanos(1);
    /** Gates open after one second without a heartbeat; a silent connection is replaced only after this longer time. */
    static final long SILENT_NANOS = TimeUnit.SECONDS.toNanos(5);
    static final int MAX_STREAMS = 8192;
    /**
     * Maximum number of streams per flow in a process that serves many applications. Further streams of the flow count
     * as unattributed, which has the same maximum; beyond that, streams are not governed.
     */
    static final int MAX_FLOW_STREAMS = MAX_STREAMS / 4;
    /**
     * Maximum number of open streams, including the read's own, at which a read passes. Nothing else slows down readers
     * that do not wait: they would open streams faster than this client's thread sends the frames.
     */
    static final int MAX_STREAMS_WITH_PASSING = 256;
    /** When no device has been stalled for this long, the next stall is logged again. */
    private static final long SOUND_NANOS = TimeUnit.MINUTES.toNanos(10);
    private static final long MIN_BACKOFF_MILLIS = 100;
    /** A restarted daemon is found within a second. After a refusal the attempts become less frequent. */
    private static final long MAX_BACKOFF_MILLIS = 1000;
    static final long MAX_REFUSED_MILLIS = 60_000;
    /**
     * A connection that lasts this long ends a series of failures. In a series, each kind of failure is logged once.
     */
    static final long LASTING_NANOS = TimeUnit.SECONDS.toNanos(10);
    private static final long SECOND = TimeUnit.SECONDS.toNanos(1);
    private static final long SELECT_MILLIS = 100;
    /** Passing reads are reported after at most about this long. */
    private static final long PASSING_MILLIS = 5;
    /** This client's thread looks for passing reads by itself until there was none for this long. */
    private static final long LOOKING_NANOS = SECOND;
    private static final int DEFAULT_STRIDE = 256 << 10;
    /** The reason for the end of a connection that the client replaces at once by one with the present directories. */
    private static final String CHANGED = "the directories of this process have changed";

    private final Transport transport;
    private final String path;
    private final String agent;
    private final Role role;
    private final String flow;
    private final Thread thread = new Thread(this, "penstock-agent");
    private final AtomicBoolean started = new AtomicBoolean();
    private volatile boolean stopped;
    private volatile List<String> directories = Collections.emptyList();
    /** The DataNode's transfer threads; 0 in other processes. */
    private volatile int threads;
    private volatile Patience usual;
    private volatile Patience striped = Patience.STRIPED;

    private final ConcurrentMap<Integer, Stream> streams = new ConcurrentHashMap<>();
    private final AtomicInteger streamCount = new AtomicInteger();
    /** Number of streams per flow, in a process that serves many flows. */
    private final ConcurrentMap<String, Integer> flowCounts = new ConcurrentHashMap<>();
    private final AtomicInteger nextId = new AtomicInteger();
    private final Queue<Stream> queue = new ConcurrentLinkedQueue<>();
    private final AtomicBoolean sleeping = new AtomicBoolean();
    private volatile Selector selector;
    /** Whether this client's thread looks for passing reads by itself, every PASSING_MILLIS. */
    private volatile boolean looking;
    /** Whether any stream ever had a callback: then this client's thread checks the time limits of such streams. */
    private volatile boolean callbacks;

    private volatile boolean connected;
    private volatile int mode = Frames.OFF;
    private volatile int stride = DEFAULT_STRIDE;
    private volatile long lastHeartbeat;
    private final Beats beats = new Beats();
    private volatile Directories governed = Directories.NONE;
    private final AtomicLong reconnects = new AtomicLong();
    private final AtomicLong framesDropped = new AtomicLong();

    /** Number of the connection; a stream remembers the connection on which it was opened. Client thread only. */
    private long session;
    private boolean everConnected;
    private long checkedAt = System.nanoTime();
    private long checkedOpen;
    private final Log.Once failures = new Log.Once();
    private final Log.Once stalls = new Log.Once();
    private int loggedMode = Frames.OFF;

    /** @param flow the flow of a task or an executor, which has only one; else "" */
    public Client(Transport transport, String path, String agent, Role role, String flow, Patience usual) {
        this.role = role;
        this.flow = flow;
        this.usual = usual;
        this.transport = transport;
        this.path = path;
        this.agent = agent;
        thread.setDaemon(true);
    }

    // ---- called by the host's threads

    /** Sets the bounds of a DataNode. With several DataNodes in a JVM, the smallest value of each bound applies. */
    synchronized void bounds(int maxThreads, Patience ofClients, Patience ofReconstruction) {
        boolean first = threads == 0;
        threads = first ? maxThreads : Math.min(threads, maxThreads);
        usual = first ? ofClients : Patience.shorter(usual, ofClients);
        striped = first ? ofReconstruction : Patience.shorter(striped, ofReconstruction);
    }

    Patience usual() {
        return usual;
    }

    /** Patience of DataNodes that read the rest of a striped block to reconstruct it. */
    Patience striped() {
        return striped;
    }

    /** Starts to connect. For a further server in the JVM, connects again with the directories of all servers. */
    synchronized void serve(List<String> more) {
        Set<String> all = new LinkedHashSet<>(directories);
        if (all.addAll(more)) {
            directories = Collections.unmodifiableList(new ArrayList<>(all));
        }
        if (started.compareAndSet(false, true)) {
            thread.start();
        }
    }

    /**
     * Replaces directories of this process by others, and connects again. The daemon then examines all directories
     * again, also unchanged ones: the file system of one may have been mounted in the meantime.
     */
    synchronized void replace(List<String> before, List<String> now) {
        Set<String> all = new LinkedHashSet<>(directories);
        all.removeAll(before);
        all.addAll(now);
        directories = Collections.unmodifiableList(new ArrayList<>(all));
    }

    /**
     * Returns null if there are too many streams. If the callback {@code again} is not null, this client's thread runs
     * it.
     */
    Stream open(boolean write, int kind, String of, File file, File meta, Peer peer, long from, long to,
            Patience patience, boolean refusable, Runnable again) {
        String admitted = admit(of);
        if (admitted == null) {
            return null;
        }
        boolean passing = !write && again == null && !peer.storage && to - from <= Frames.MAX_PASSING
                && isFree(kind, file) && streamCount.get() <= MAX_STREAMS_WITH_PASSING;
        Stream s = new Stream(nextId.incrementAndGet(), connected, write, kind, admitted, file, meta, peer, from, to,
                patience, refusable, passing, again);
        if (passing) {
            Gates.PASSED.increment();
        }
        if (again != null) {
            callbacks = true;
        }
        if (streams.putIfAbsent(s.id, s) != null) {
            dismiss(admitted);
            return null;
        }
        touch(s, !passing);
        return s;
    }

    /** Returns the flow for which a further stream of the given flow counts; null if there are too many streams. */
    private String admit(String of) {
        if (streamCount.incrementAndGet() > MAX_STREAMS) {
            streamCount.decrementAndGet();
            return null;
        }
        if (!flow.isEmpty() || flowCounts.merge(of, 1, Integer::sum) <= MAX_FLOW_STREAMS) {
            return of;
        }
        dismiss(of);
        if (of.equals(Names.UNATTRIBUTED)) {
            return null;
        }
        Gates.OVER_BOUND.increment();
        return admit(Names.UNATTRIBUTED);
    }

    /** Subtracts a stream of the given flow from the counts. */
    private void dismiss(String of) {
        streamCount.decrementAndGet();
        if (flow.isEmpty()) {
            flowCounts.computeIfPresent(of, (name, count) -> count == 1 ? null : count - 1);
        }
    }

    /** Queues s, because there is news to send about it. */
    void touch(Stream s) {
        touch(s, true);
    }

    /** @param now whether somebody waits for the daemon's answer */
    private void touch(Stream s, boolean now) {
        if (connected && s.queued.compareAndSet(false, true)) {
            queue.add(s);
            if ((now || !looking) && sleeping.compareAndSet(true, false)) {
                Selector awake = selector;
                if (awake != null) {
                    awake.wakeup();
                }
            }
        }
    }

    /**
     * Queues the CLOSE. The frames of a passing read are sent a moment later, together with others: nobody waits for
     * them, and a wake-up of this client's thread and of the daemon would cost more than the rest of the read's path.
     */
    void closed(Stream s) {
        if (connected) {
            touch(s, !s.passing);
        } else {
            forget(s);
        }
    }

    int stride() {
        return stride;
    }

    /** Whether any gate may hold. */
    public boolean enforcing(long now) {
        return mode == Frames.ENFORCE && !isLost(now);
    }

    /** Whether small reads of the file need not wait: nobody else uses its device. */
    boolean isFree(int kind, File file) {
        return mode == Frames.ENFORCE
                && beats.isFree(governed.deviceOf(kind, file.getPath()), System.nanoTime());
    }

    /** Whether the stream's gate may hold. */
    boolean enforcing(Stream s, long now) {
        return enforcedFor(s, now) > 0;
    }

    /** Nanoseconds until the stream's gate opens without a further heartbeat of its device; 0 or less if it is open. */
    long enforcedFor(Stream s, long now) {
        return mode == Frames.ENFORCE ? beats.left(s.device, now) : 0;
    }

    /** Whether the daemon lives, and the stream's device is stalled. */
    boolean isStalled(Stream s, long now) {
        return !isLost(now) && beats.left(s.device, now) <= 0;
    }

    /** Whether there is no daemon, or a silent one. */
    boolean isLost(long now) {
        return !connected || now - lastHeartbeat >= Beats.LOST_NANOS;
    }

    // ---- figures

    /** Time of the daemon's last heartbeat, in System.nanoTime(). */
    long lastHeartbeat() {
        return lastHeartbeat;
    }

    public boolean isConnected() {
        return connected;
    }

    int mode() {
        return mode;
    }

    public int streamsOpen() {
        return streamCount.get();
    }

    long reconnects() {
        return reconnects.get();
    }

    /** Number of connections that ended or failed. */
    long failures() {
        return failures.count();
    }

    /** How often a device was found to be stalled while the daemon lived. */
    long stalls() {
        return stalls.count();
    }

    long framesDropped() {
        return framesDropped.get();
    }

    public void stop() throws InterruptedException {
        quit();
        if (started.get()) {
            thread.join();
        }
    }

    /** Like {@link #stop}, for a thread that may not wait. */
    void quit() {
        stopped = true;
        if (started.get()) {
            thread.interrupt();
        }
    }

    /**
     * Ends the connection when the JVM begins to exit. Although the client's thread is a daemon thread, it would delay
     * the exit by 50 ms on average, because it waits for the socket.
     */
    void quitAtExit() {
        Runtime.getRuntime().addShutdownHook(new Thread("penstock-agent-exit") {
            @Override
            public void run() {
                quit();
            }
        });
    }

    // ---- the thread

    @Override
    public void run() {
        long backoff = MIN_BACKOFF_MILLIS;
        while (!stopped) {
            Thread.interrupted(); // clears the flag, which would end each wait below
            Session tried = null;
            boolean refused = false;
            String failure;
            try (SocketChannel channel = transport.connect(path); Selector open = Selector.open()) {
                tried = new Session(channel, open);
                failure = tried.run();
            } catch (Frames.Refused e) {
                refused = !connected;
                failure = "the daemon sent an invalid frame: " + e.getMessage();
            } catch (Throwable t) {
                refused = tried != null && tried.reached && !connected && t instanceof IOException
                        && !(t instanceof Untrusted);
                failure = !refused ? t.toString() : "the daemon refused this agent; the daemon's log has the reason:"
                        + " another release, or a user or directories that are not in its settings";
            }
            boolean lasted = tried != null && tried.lasted(SECOND);
            disconnect();
            if (stopped) {
                return;
            }
            if (failure == CHANGED) {
                Log.say(CHANGED + "; connecting again to register them");
                continue;
            }
            failures.say("not connected to " + path + " (" + failure + "); I/O is not governed; trying again");
            backoff = lasted ? MIN_BACKOFF_MILLIS
                    : Math.min(2 * backoff, refused ? MAX_REFUSED_MILLIS : MAX_BACKOFF_MILLIS);
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(backoff));
        }
    }

    /** Milliseconds until gates may open because of a missing heartbeat, at most the usual interval. */
    private long untilCheck(long now) {
        long left = mode == Frames.ENFORCE ? beats.untilNext(now) : Long.MAX_VALUE;
        return Math.min(TimeUnit.NANOSECONDS.toMillis(left) + 1, SELECT_MILLIS);
    }

    /**
     * Checks for each stream with a callback whether its gate has opened and whether its wait is too long. A waiting
     * thread checks both by itself.
     */
    private void checkCallbacks(long now) {
        long open = mode == Frames.ENFORCE ? beats.stalled(now) : -1;
        if (open == checkedOpen && now - checkedAt < TimeUnit.MILLISECONDS.toNanos(SELECT_MILLIS)) {
            return;
        }
        checkedAt = now;
        checkedOpen = open;
        for (Stream s : streams.values()) {
            long since = s.heldSince;
            if (since == 0 || !s.isHeld()) {
                continue;
            }
            if (!enforcing(s, now)) {
                s.wake();
            } else if (now - since >= s.patience.ceilingNanos) {
                Gates.BACKSTOPS.increment();
                s.mark(Long.MAX_VALUE);
            }
        }
    }

    private void forget(Stream s) {
        if (streams.remove(s.id, s)) {
            dismiss(s.flow);
        }
    }

    private void disconnect() {
        connected = false; // before the mode, so that a wait that ends now finds the reason
        mode = Frames.OFF;
        selector = null;
        for (Stream s = queue.poll(); s != null; s = queue.poll()) {
            s.queued.set(false);
        }
        for (Stream s : streams.values()) {
            if (s.isClosed()) {
                forget(s);
                framesDropped.incrementAndGet();
            } else {
                s.wake();
            }
        }
    }

    /** One connection, from its start to its end. */
    private final class Session implements Frames.Handler {
        private final SocketChannel channel;
        private final Selector open;
        private final ByteBuffer in = ByteBuffer.allocateDirect(2 * Frames.MAX_FRAME);
        private final ByteBuffer out = ByteBuffer.allocateDirect(8 * Frames.MAX_FRAME);
        private final List<String> registered = directories;
        private final long begun = System.nanoTime();
        private long tookSome = begun;
        /** Whether the socket has a listener. */
        private boolean reached;
        /** Whether the peer is known to be the daemon. Before that, nothing is sent or read. */
        private boolean verified;
        private long verifyMillis = 1;
        private long welcomed;
        /** When the last passing read was reported. */
        private long passedAt = begun - LOOKING_NANOS;
        /** A bit for each stalled device, and the time of the last stall. */
        private long stalled;
        private long lastStalled = begun;

        Session(SocketChannel channel, Selector open) {
            this.channel = channel;
            this.open = open;
        }

        /** Returns the reason why the connection ended, unless an exception ended it. */
        String run() throws IOException, Frames.Refused {
            session++;
            SelectionKey key = channel.register(open, SelectionKey.OP_CONNECT);
            Frames.hello(out, pid(), role.code, agent, flow, threads, registered);
            selector = open;
            while (!stopped) {
                long now = System.nanoTime();
                if (channel.isConnected() || channel.finishConnect()) {
                    reached = true;
                    verified = verified || transport.reaches(channel);
                    if (verified && send(now)) {
                        fill();
                        send(now);
                    }
                    key.interestOps(!verified ? 0
                            : SelectionKey.OP_READ | (out.position() > 0 ? SelectionKey.OP_WRITE : 0));
                }
                if (connected && failures.isQuiet() && lasted(LASTING_NANOS)) {
                    settled();
                }
                String failure = failure(now);
                if (failure != null) {
                    return failure;
                }
                sleeping.set(true);
                looking = now - passedAt < LOOKING_NANOS; // before it examines the queue: touch does both in the other order
                if (connected && out.position() == 0 && !queue.isEmpty()) {
                    open.selectNow();
                } else if (looking) {
                    open.select(PASSING_MILLIS);
                } else if (reached && !verified) {
                    open.select(verifyMillis);
                    verifyMillis = Math.min(2 * verifyMillis, SELECT_MILLIS);
                } else {
                    open.select(callbacks ? untilCheck(System.nanoTime()) : SELECT_MILLIS);
                }
                sleeping.set(false);
                boolean ready = !open.selectedKeys().isEmpty(); // not only a wakeup by a stream
                open.selectedKeys().clear();
                if (ready && verified) {
                    receive();
                }
                if (callbacks) {
                    checkCallbacks(System.nanoTime());
                }
            }
            return "stopped";
        }

        boolean lasted(long nanos) {
            return connected && System.nanoTime() - welcomed >= nanos;
        }

        /** Ends a series of failures. */
        private void settled() {
            failures.forget();
            Log.say("connected to " + path + transport.way() + ", after " + failures.count()
                    + " failures since the process began");
        }

        private String failure(long now) {
            if (reached && !verified) {
                return now - begun > STUCK_NANOS ? "the daemon has not accepted the connection within a second" : null;
            }
            if (out.position() > 0 && now - tookSome > STUCK_NANOS) {
                return "the daemon does not read";
            }
            if (!connected && now - begun > STUCK_NANOS) {
                return "no WELCOME within a second";
            }
            if (connected && now - lastHeartbeat > SILENT_NANOS) {
                return "no heartbeat for 5 s";
            }
            return registered == directories ? null : CHANGED;
        }

        /** Sends as much as possible; returns true if all was sent and the queue has more. */
        private boolean send(long now) throws IOException {
            if (out.position() == 0) {
                tookSome = now;
            } else {
                out.flip();
                if (channel.write(out) > 0) {
                    tookSome = now;
                }
                out.compact();
            }
            return connected && out.position() == 0 && !queue.isEmpty();
        }

        /** Writes the frames of queued streams to out while there is room for the largest frames of a stream. */
        private void fill() throws Frames.Refused {
            while (out.remaining() >= 2 * Frames.MAX_FRAME) {
                Stream s = queue.poll();
                if (s == null) {
                    return;
                }
                s.queued.set(false); // before the stream's fields are read, so a later change queues it again
                frames(s);
            }
        }

        private void frames(Stream s) throws Frames.Refused {
            if (streams.get(s.id) != s) {
                return; // its CLOSE has been sent
            }
            boolean closed = s.isClosed();
            long position = s.position;
            if (s.passing) {
                passedAt = System.nanoTime();
            }
            if (s.session != session) {
                // Bytes that were read or written without a daemon are not reported, with two exceptions that are
                // reported from their beginning: a stream that has just begun, and a task's file that is being written,
                // because most of the file is still in the page cache.
                boolean whole = s.prompt || s.write && s.kind == Frames.INTERMEDIATE;
                long at = s.session == 0 && whole ? s.from : position;
                int start = out.position();
                s.device = governed.deviceOf(s.kind, s.block);
                try {
                    Frames.open(out, s.id, s.write, s.kind, s.refusable && s.session == 0, s.passing,
                            s.patience.millis, s.flow, s.block, s.meta, s.peer, at,
                            s.write && s.to == 0 ? 0 : Math.max(s.to, at));
                } catch (Frames.Refused e) {
                    out.position(start);
                    Gates.FAILED_OPENS.increment();
                    s.mark(Long.MAX_VALUE);
                    forget(s);
                    return;
                }
                if (s.session != 0) {
                    s.mark = Stream.NO_MARK; // marks of an earlier connection are void
                }
                s.session = session;
                s.sent = at;
            }
            if (closed) {
                Frames.close(out, s.id, position, s.failed);
                forget(s);
            } else if (position > s.sent) {
                Frames.progress(out, s.id, position);
                s.sent = position;
            }
        }

        private void receive() throws IOException, Frames.Refused {
            int n = channel.read(in);
            if (n < 0) {
                throw new EOFException("the daemon closed the connection");
            }
            in.flip();
            Frames.read(in, this);
            in.compact();
        }

        @Override
        public void welcome(int newMode, int newStride, int heartbeatMillis, byte[] newDevices)
                throws Frames.Refused {
            if (newDevices.length != registered.size()) {
                throw new Frames.Refused(newDevices.length + " devices for " + registered.size() + " directories");
            }
            stride = newStride;
            governed = new Directories(registered, newDevices);
            lastHeartbeat = System.nanoTime();
            beats.begin(newDevices, lastHeartbeat);
            if (!connected) {
                welcomed = lastHeartbeat;
                connected = true; // first, so that a stream opened from now on queues itself
                for (Stream s : streams.values()) {
                    touch(s);
                }
                if (!failures.isQuiet()) {
                    // After a failure, this is logged only when the connection has lasted.
                    Log.say("connected to " + path + transport.way());
                }
                if (everConnected) {
                    reconnects.incrementAndGet();
                }
                everConnected = true;
            }
            change(newMode);
        }

        @Override
        public void mark(int stream, long position) {
            Stream s = streams.get(stream);
            if (s == null || s.session != session) {
                return;
            }
            if (position == Frames.REFUSED) {
                s.refuse();
            } else {
                s.mark(position);
            }
        }

        @Override
        public void heartbeat(long tick, int newMode, long alive, long free) {
            long now = System.nanoTime();
            lastHeartbeat = now;
            beats.beat(alive, free, now);
            noteStalls(beats.stalled(now), now);
            if (connected) {
                change(newMode);
            }
        }

        /** Logs and counts the newly stalled devices. */
        private void noteStalls(long devicesNow, long now) {
            if ((devicesNow & ~stalled & 1L << Frames.NETWORK_DEVICE) != 0) {
                logStalled("the network");
            }
            long before = stalled | 1L << Frames.NETWORK_DEVICE;
            byte[] devices = governed.devices;
            for (int i = 0; i < devices.length; i++) {
                if ((devicesNow & ~before & 1L << devices[i]) != 0) {
                    before |= 1L << devices[i]; // one line for all its directories
                    logStalled("the device of " + registered.get(i));
                }
            }
            stalled = devicesNow;
            if (stalled != 0) {
                lastStalled = now;
            } else if (stalls.isQuiet() && now - lastStalled > SOUND_NANOS) {
                stalls.forget();
            }
        }

        private void logStalled(String what) {
            stalls.say(what + " is stalled in the daemon; its gates are open until it continues");
        }

        private void change(int newMode) {
            if (mode == newMode) {
                return;
            }
            mode = newMode;
            if (loggedMode != newMode) {
                loggedMode = newMode;
                Log.say("mode is " + modeName(newMode));
            }
            for (Stream s : streams.values()) {
                s.wake();
            }
        }
    }

    static String modeName(int mode) {
        return mode == Frames.ENFORCE ? "enforce" : mode == Frames.OBSERVE ? "observe" : "off";
    }

    /** The name and version that this jar sends to the daemon. */
    public static String agent() {
        String version = Client.class.getPackage().getImplementationVersion();
        return "penstock-agent " + (version == null ? "dev" : version);
    }

    /** Returns the process id, without JMX, which takes too long to load for a short task. */
    private static int pid() {
        try {
            return Integer.parseInt(new File("/proc/self").getCanonicalFile().getName());
        } catch (IOException | NumberFormatException e) {
            return 0; // no /proc; the daemon gets the number from the Unix socket anyway
        }
    }
}
