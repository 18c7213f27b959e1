package penstock.core;

import static org.junit.jupiter.api.Assertions.assertNotNull;

import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.function.Supplier;

/**
 * A daemon for tests on a real Unix socket or a real loopback port: it sends WELCOME and heartbeats, records every
 * frame that it receives, and otherwise follows the test.
 */
public final class TestDaemon implements AutoCloseable {
    public static final int STRIDE = 1000;

    /** A frame from the agent; the fields that its type lacks are zero or empty. */
    public record Heard(int type, int stream, boolean write, String flow, String block, String meta, long from,
            long to, long position, boolean failed, List<String> directories, int kind, int role, Peer peer,
            int threads, int patience, boolean refusable, boolean passing) {
        Heard(int type, int stream, long position, boolean failed) {
            this(type, stream, false, "", "", "", 0, 0, position, failed, List.of(), 0, 0, Peer.UNKNOWN, 0, 0, false,
                    false);
        }
    }

    public static final int HELLO = Frames.HELLO;
    public static final int OPEN = Frames.OPEN;
    public static final int PROGRESS = Frames.PROGRESS;
    public static final int CLOSE = Frames.CLOSE;
    public static final int ENFORCE = Frames.ENFORCE;
    public static final int OBSERVE = Frames.OBSERVE;

    public final Path socket;
    /** Answers every OPEN at once with the largest mark. */
    public volatile boolean generous;
    public volatile int mode;
    public volatile boolean beating = true;
    /** Set before a connection is made: accept it and then do nothing, like a stopped process. */
    public volatile boolean deaf;
    /** Stops reading, but still sends heartbeats. */
    public volatile boolean paused;
    public volatile long lastBeat;
    /** A bit in the heartbeats for each device that lives; by default all live. */
    public volatile long alive = -1;
    /** A bit in the heartbeats for each device that is free. */
    public volatile long free;
    /** The directories' devices, set before a connection is made. */
    public volatile byte[] devices = {};
    /** Set before a connection is made: read the HELLO and close the connection. */
    public volatile boolean refusing;
    public volatile int refused;

    private final BlockingQueue<Heard> heard = new LinkedBlockingQueue<>();
    private final ServerSocketChannel server;
    private final List<Thread> threads = new ArrayList<>();
    private volatile SocketChannel current;
    /** All connections; a test's frames go to the latest one. */
    private final List<SocketChannel> connected = new CopyOnWriteArrayList<>();
    private volatile boolean closed;

    public TestDaemon(Path socket, int mode) throws IOException {
        this(socket, mode, false);
    }

    /** @param loopback listen at a loopback port, and write its file beside the path of the socket */
    public TestDaemon(Path socket, int mode, boolean loopback) throws IOException {
        this.socket = socket;
        this.mode = mode;
        if (loopback) {
            server = ServerSocketChannel.open(StandardProtocolFamily.INET);
            server.bind(new InetSocketAddress("127.0.0.1", 0));
            announce(socket, port());
        } else {
            Files.deleteIfExists(socket);
            server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
            server.bind(UnixDomainSocketAddress.of(socket));
        }
        start(this::accept);
        start(this::beat);
    }

    int port() throws IOException {
        return ((InetSocketAddress) server.getLocalAddress()).getPort();
    }

    /** Writes the file that names a loopback port, as the daemon does. */
    static void announce(Path socket, int port) throws IOException {
        Path file = Path.of(PortFile.of(socket.toString()));
        Path next = Path.of(file + ".new");
        String namespace = Files.readSymbolicLink(Path.of("/proc/self/ns/net")).toString();
        Files.writeString(next, "127.0.0.1:" + port + " " + namespace + " 1\n");
        Files.setPosixFilePermissions(next, PosixFilePermissions.fromString("rw-r--r--"));
        Files.move(next, file, StandardCopyOption.ATOMIC_MOVE);
    }

    private synchronized void start(Runnable body) {
        Thread thread = new Thread(body, "test-daemon");
        thread.setDaemon(true);
        thread.start();
        threads.add(thread);
    }

    private void accept() {
        while (!closed) {
            try {
                SocketChannel channel = server.accept();
                current = channel;
                connected.add(channel);
                if (!deaf) {
                    start(() -> listen(channel));
                }
            } catch (IOException e) {
                return;
            }
        }
    }

    private void beat() {
        for (long tick = 0; !closed; tick++) {
            if (beating && !deaf) {
                for (SocketChannel channel : connected) {
                    lastBeat = System.nanoTime();
                    send(channel, heartbeat(tick));
                }
            }
            try {
                Thread.sleep(100);
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private ByteBuffer heartbeat(long tick) {
        return frame(Frames.HEARTBEAT, 25).putLong(tick).put((byte) mode).putLong(alive).putLong(free);
    }

    /** Sends a heartbeat to the latest connection, as when a device stops being free. */
    public void beatNow() {
        send(current, heartbeat(0));
    }

    private void listen(SocketChannel channel) {
        try (DataInputStream in = new DataInputStream(Channels.newInputStream(channel))) {
            while (true) {
                while (paused && !closed) {
                    Thread.onSpinWait();
                }
                in.readUnsignedShort();
                int type = in.readUnsignedByte();
                if (in.readUnsignedByte() != Frames.VERSION) {
                    throw new IOException("version");
                }
                Heard h = message(in, type);
                heard.add(h);
                if (type == Frames.HELLO && refusing) {
                    refused++;
                    channel.close();
                } else if (type == Frames.HELLO) {
                    send(channel, welcome(h.directories.size()));
                } else if (type == Frames.OPEN && generous) {
                    send(channel, frame(Frames.MARK, 12).putInt(h.stream).putLong(Long.MAX_VALUE));
                }
            }
        } catch (IOException e) {
            connected.remove(channel); // the agent or the test closed the connection
        }
    }

    private static Heard message(DataInputStream in, int type) throws IOException {
        switch (type) {
            case Frames.HELLO: {
                in.readInt();
                int role = in.readByte();
                string(in);
                String flow = string(in);
                int threads = in.readInt();
                List<String> directories = new ArrayList<>();
                for (int n = in.readUnsignedShort(); n > 0; n--) {
                    directories.add(string(in));
                }
                return new Heard(type, 0, false, flow, "", "", 0, 0, 0, false, directories, 0, role, Peer.UNKNOWN,
                        threads, 0, false, false);
            }
            case Frames.OPEN:
                return open(in);
            case Frames.PROGRESS:
                return new Heard(type, in.readInt(), in.readLong(), false);
            case Frames.CLOSE:
                return new Heard(type, in.readInt(), in.readLong(), in.readByte() == 1);
            default:
                throw new IOException("type " + type);
        }
    }

    private static Heard open(DataInputStream in) throws IOException {
        int stream = in.readInt();
        boolean write = in.readByte() == 2;
        int kind = in.readByte();
        int flags = in.readByte();
        int patience = in.readInt();
        String flow = string(in);
        String path = string(in);
        String meta = string(in);
        Peer peer = new Peer(string(in), string(in), string(in));
        return new Heard(Frames.OPEN, stream, write, flow, path, meta, in.readLong(), in.readLong(), 0, false,
                List.of(), kind, 0, peer, 0, patience, (flags & 1) != 0, (flags & 2) != 0);
    }

    private static String string(DataInputStream in) throws IOException {
        byte[] bytes = new byte[in.readUnsignedShort()];
        in.readFully(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /**
     * Returns the devices of the directories. Each directory has its own device, numbered from 1, unless the test sets
     * other numbers.
     */
    private ByteBuffer welcome(int directories) {
        ByteBuffer b = frame(Frames.WELCOME, 9 + directories).put((byte) mode).putInt(STRIDE).putShort((short) 100)
                .putShort((short) directories);
        for (int i = 0; i < directories; i++) {
            b.put(i < devices.length ? devices[i] : (byte) (i + 1));
        }
        return b;
    }

    private static ByteBuffer frame(int type, int payload) {
        return ByteBuffer.allocate(4 + payload).putShort((short) payload).put((byte) type).put((byte) Frames.VERSION);
    }

    private synchronized void send(SocketChannel channel, ByteBuffer frame) {
        frame.flip();
        try {
            while (frame.hasRemaining()) {
                channel.write(frame);
            }
        } catch (IOException e) {
            // A closed connection receives nothing.
        }
    }

    public void mark(int stream, long position) {
        send(current, frame(Frames.MARK, 12).putInt(stream).putLong(position));
    }

    public void raw(byte... bytes) {
        ByteBuffer b = ByteBuffer.allocate(bytes.length).put(bytes);
        send(current, b);
    }

    public void hangUp() throws IOException {
        SocketChannel channel = current;
        current = null;
        connected.remove(channel);
        channel.close();
    }

    /**
     * How long a test waits for a frame: on a busy machine a JVM with Spark needs over 20 s to start. This is less than
     * the time of the tests with such JVMs, which would end without the message below.
     */
    private static final int PATIENCE_SECONDS = 45;

    /** What else a failure reports, such as the stacks of the agent's process. */
    public volatile Supplier<String> report = () -> "";

    private String missing(int type, List<Heard> others) {
        StringBuilder text = new StringBuilder("no frame of type " + type + " came; others were ");
        others.forEach(h -> text.append(h.type).append(' '));
        Thread.getAllStackTraces().forEach((thread, stack) -> {
            text.append('\n').append(thread);
            for (StackTraceElement at : stack) {
                text.append("\n    at ").append(at);
            }
        });
        return text.append('\n').append(report.get()).toString();
    }

    /** Returns the next frame of the type that the condition accepts. The frames before it are dropped. */
    public Heard next(int type, Predicate<Heard> condition) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        List<Heard> others = new ArrayList<>();
        while (true) {
            Heard h = heard.poll(end - System.nanoTime(), TimeUnit.NANOSECONDS);
            assertNotNull(h, () -> missing(type, others));
            if (h.type == type && condition.test(h)) {
                return h;
            }
            others.add(h);
        }
    }

    /** Returns all received frames that the test has not taken yet. */
    public List<Heard> heard() {
        List<Heard> all = new ArrayList<>();
        heard.drainTo(all);
        return all;
    }

    public void forget() {
        heard.clear();
    }

    /** Returns all frames up to the first one of the type. */
    public List<Heard> until(int type) throws InterruptedException {
        List<Heard> all = new ArrayList<>();
        do {
            Heard h = heard.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
            assertNotNull(h, () -> missing(type, all));
            all.add(h);
        } while (all.get(all.size() - 1).type != type);
        return all;
    }

    public Heard next(int type) throws InterruptedException {
        return next(type, h -> true);
    }

    @Override
    public void close() throws IOException {
        closed = true;
        server.close();
        for (SocketChannel channel : connected) {
            channel.close();
        }
        Files.deleteIfExists(socket);
        Files.deleteIfExists(Path.of(PortFile.of(socket.toString())));
    }
}
