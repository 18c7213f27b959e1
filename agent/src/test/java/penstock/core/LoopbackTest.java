package penstock.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** The loopback connection: real sockets, with the kernel's tables or with tables that the test has written. */
@Timeout(60)
class LoopbackTest {
    private static final String ANY = "00000000:0000";

    private Path directory;
    private Path proc;
    private String socket;
    private ServerSocketChannel server;
    private int port;

    @BeforeEach
    void begin() throws Exception {
        directory = Files.createTempDirectory("penstock");
        proc = directory.resolve("proc");
        Files.createDirectories(proc.resolve("net"));
        Files.createDirectories(proc.resolve("self/ns"));
        Files.createSymbolicLink(proc.resolve("self/ns/net"), Files.readSymbolicLink(Path.of("/proc/self/ns/net")));
        socket = directory.resolve("s").toString();
        server = ServerSocketChannel.open();
        server.bind(new InetSocketAddress("127.0.0.1", 0));
        port = ((InetSocketAddress) server.getLocalAddress()).getPort();
        TestDaemon.announce(Path.of(socket), port);
    }

    @AfterEach
    void end() throws Exception {
        server.close();
        try (Stream<Path> all = Files.walk(directory)) {
            for (Path path : (Iterable<Path>) all.sorted(Comparator.reverseOrder())::iterator) {
                Files.delete(path);
            }
        }
    }

    private static String hex(int port) {
        return String.format("0100007F:%04X", port);
    }

    /** Writes a table with these rows. */
    private void table(String name, String... rows) throws IOException {
        Files.writeString(proc.resolve("net").resolve(name), TcpTableTest.HEADING + String.join("", rows));
    }

    private static String row(String local, String remote, String state, long uid, long inode) {
        return TcpTableTest.row(local, remote, state, uid, inode);
    }

    private static int portOf(SocketChannel channel) throws IOException {
        return ((InetSocketAddress) channel.getLocalAddress()).getPort();
    }

    private String listening(long uid) {
        return row(hex(port), ANY, "0A", uid, 7);
    }

    private static void refused(String why, Executable executable) {
        String message = assertThrows(Untrusted.class, executable).getMessage();
        assertTrue(message.contains(why), message);
    }

    @Test
    void reachesTheDaemonOnceItHasAccepted() throws Exception {
        Loopback loopback = new Loopback();
        try (SocketChannel channel = loopback.connect(socket)) {
            assertTrue(channel.finishConnect());
            assertFalse(loopback.reaches(channel)); // it belongs to nobody yet
            try (SocketChannel accepted = server.accept()) {
                await(() -> reaches(loopback, channel));
                accepted.close();
                assertThrows(EOFException.class, () -> loopback.reaches(channel));
            }
        }
    }

    private static boolean reaches(Loopback loopback, SocketChannel channel) {
        try {
            return loopback.reaches(channel);
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    private static void await(BooleanSupplier condition) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, "it did not happen within 20 s");
            Thread.onSpinWait();
        }
    }

    @Test
    void nobodyListens() throws Exception {
        server.close();
        refused("nobody listens at port " + port + ", which " + socket + ".port names: the daemon is not running",
                () -> new Loopback().connect(socket));
    }

    @Test
    void aListenerOfAnotherUserGetsNoConnection() throws Exception {
        Loopback loopback = new Loopback(proc);
        String why = "a process of user 4711 listens at port " + port;
        table("tcp", listening(4711));
        refused(why, () -> loopback.connect(socket));
        // Another user's socket on all addresses, and one of IPv6 that accepts IPv4.
        table("tcp", listening(0), row(String.format("00000000:%04X", port), ANY, "0A", 4711, 8));
        refused(why, () -> loopback.connect(socket));
        table("tcp", listening(0));
        for (String all : new String[] {"00000000000000000000000000000000", "0000000000000000FFFF000000000000",
            "0000000000000000FFFF00000100007F"}) {
            table("tcp6", row(String.format("%s:%04X", all, port), ANY, "0A", 4711, 8));
            refused(why, () -> loopback.connect(socket));
        }
        // Sockets that cannot get the connection: of other ports and other addresses, and one that nobody has.
        table("tcp6", row(String.format("00000000000000000000000001000000:%04X", port), ANY, "0A", 4711, 8));
        table("tcp", row(hex(port ^ 1), ANY, "0A", 4711, 8),
                row(String.format("0200007F:%04X", port), ANY, "0A", 4711, 8),
                row(hex(port), ANY, "0A", 4711, 0), listening(0));
        server.configureBlocking(false);
        assertNull(server.accept()); // so far
        loopback.connect(socket).close();
        await(() -> {
            try {
                return server.accept() != null;
            } catch (IOException e) {
                throw new AssertionError(e);
            }
        });
        table("tcp", row(hex(port), ANY, "0A", 0, 0)); // a socket that nobody has does not count
        refused("nobody listens", () -> loopback.connect(socket));
    }

    @Test
    void theOtherEndMustBelongToTheDaemon() throws Exception {
        Loopback loopback = new Loopback(proc);
        table("tcp", listening(0));
        try (SocketChannel channel = loopback.connect(socket)) {
            assertTrue(channel.finishConnect());
            String own = hex(portOf(channel));
            // Not there yet; there, and not accepted; accepted, by root.
            assertFalse(loopback.reaches(channel));
            table("tcp", listening(0), row(hex(port), own, "01", 0, 0));
            assertFalse(loopback.reaches(channel));
            table("tcp", listening(0), row(hex(port), own, "01", 0, 9));
            assertTrue(loopback.reaches(channel));
            // The agent refuses a connection that another user's process has accepted, even if the daemon still listens.
            String why = "a process of user 4711 has accepted a connection to port " + port;
            table("tcp", listening(0), row(hex(port), own, "01", 4711, 9));
            refused(why, () -> loopback.reaches(channel));
            table("tcp", listening(0));
            String mapped = "0000000000000000FFFF0000";
            table("tcp6", row(mapped + hex(port), mapped + own, "01", 4711, 9));
            refused(why, () -> loopback.reaches(channel));
            // The agent ignores rows of other connections and the row of its own socket.
            table("tcp6", row(own, hex(port), "01", 0, 9), row(hex(port), hex(portOf(channel) ^ 1), "01", 0, 9),
                    row(hex(port ^ 1), own, "01", 0, 9),
                    row(hex(port), own.replace("0100007F", "0200007F"), "01", 0, 9));
            assertFalse(loopback.reaches(channel));
            for (String state : new String[] {"04", "05", "06", "08"}) {
                table("tcp", row(hex(port), own, state, 0, 0));
                assertThrows(EOFException.class, () -> loopback.reaches(channel));
            }
            Files.delete(proc.resolve("net/tcp"));
            assertThrows(IOException.class, () -> loopback.reaches(channel));
        }
    }

    @Test
    void aConnectionToItself() throws Exception {
        Loopback loopback = new Loopback(proc);
        table("tcp", listening(0));
        loopback.connect(socket).close();
        server.close();
        // Nobody listens, and the kernel happens to choose the daemon's port for the client.
        try (SocketChannel channel = SocketChannel.open()) {
            channel.setOption(StandardSocketOptions.SO_REUSEADDR, true);
            channel.bind(new InetSocketAddress("127.0.0.1", port));
            assertTrue(channel.connect(new InetSocketAddress("127.0.0.1", port)));
            table("tcp", row(hex(port), hex(port), "01", 0, 9));
            refused("the connection leads to itself", () -> loopback.reaches(channel));
        }
    }

    @Test
    void aContainerWithANetworkOfItsOwn() throws Exception {
        Loopback loopback = new Loopback(proc);
        table("tcp");
        Files.delete(proc.resolve("self/ns/net"));
        Files.createSymbolicLink(proc.resolve("self/ns/net"), Path.of("net:[1]"));
        refused("this process has a network of its own (net:[1]), so it cannot reach the daemon's port (net:[",
                () -> loopback.connect(socket));
        refused("give its container the host's network, or use Java 16 or later", () -> loopback.connect(socket));
        Files.delete(proc.resolve("self/ns/net"));
        refused("nobody listens at port " + port, () -> loopback.connect(socket));
    }

    @Test
    void theTransportFollowsTheJvm() {
        assertInstanceOf(UnixSockets.class, Transport.named(null));
        assertInstanceOf(UnixSockets.class, Transport.named("unix"));
        assertInstanceOf(Loopback.class, Transport.named("loopback"));
        assertInstanceOf(Loopback.class, Transport.named(null, "java.net.NoSuchAddress"));
        assertThrows(UnsupportedOperationException.class, () -> Transport.named("unix", "java.net.NoSuchAddress"));
        assertThrows(IllegalArgumentException.class, () -> Transport.named("tcp"));
    }

    /** A plug-in stays out if the daemon runs without the port; if there is no daemon, it tries. */
    @Test
    void obstacles() throws Exception {
        Loopback loopback = new Loopback();
        assertNull(loopback.obstacle(socket));
        Files.delete(Path.of(socket + ".port"));
        assertNull(loopback.obstacle(socket));
        Files.createFile(Path.of(socket));
        assertTrue(loopback.obstacle(socket).contains("set loopback to 127.0.0.1:0 in the daemon's settings"));
        System.setProperty(Transport.PROPERTY, "loopback");
        try {
            String reason = Gates.connect(socket, Role.TASK, "application", List.of("/d"), line -> { });
            assertTrue(reason.startsWith("there is no " + socket + ".port"), reason);
            System.setProperty(Transport.PROPERTY, "tcp");
            assertEquals("transport tcp: use unix or loopback",
                    Gates.connect(socket, Role.TASK, "application", List.of("/d"), line -> { }));
        } finally {
            System.clearProperty(Transport.PROPERTY);
        }
        assertNull(Gates.installed());
    }

    /** The client sends nothing to another user's process, and reads nothing from it. */
    @Test
    void theClientKeepsSilentUntilThePeerIsKnown() throws Exception {
        List<String> said = new CopyOnWriteArrayList<>();
        Log.to(said::add);
        table("tcp", listening(0));
        Client client = new Client(new Loopback(proc), socket, "test", Role.DATANODE, "", Patience.USUAL);
        try {
            client.serve(List.of("/d"));
            try (SocketChannel accepted = server.accept()) {
                // A WELCOME, which the client does not read.
                accepted.write(ByteBuffer.wrap(new byte[] {0, 10, 2, Frames.VERSION, 2, 0, 0, 16, 0, 0, 100, 0, 1, 1}));
                String own = hex(((InetSocketAddress) accepted.getRemoteAddress()).getPort());
                table("tcp", listening(0), row(hex(port), own, "01", 4711, 9));
                ByteBuffer got = ByteBuffer.allocate(1);
                int n;
                try {
                    n = accepted.read(got);
                } catch (IOException e) {
                    n = -1; // a reset, since the WELCOME was not read
                }
                assertEquals(-1, n);
            }
            String why = "a process of user 4711 has accepted a connection to port " + port;
            await(() -> said.stream().anyMatch(line -> line.contains(why)
                    && line.contains("nothing was sent to it") && line.contains("I/O is not governed; trying again")));
            assertFalse(client.isConnected());
            // The daemon itself, as the table shows from now on.
            boolean heard = false;
            for (int i = 0; i < 5 && !heard; i++) {
                table("tcp", listening(0));
                try (SocketChannel accepted = server.accept()) {
                    String own = hex(((InetSocketAddress) accepted.getRemoteAddress()).getPort());
                    table("tcp", listening(0), row(hex(port), own, "01", 0, 9));
                    heard = accepted.read(ByteBuffer.allocate(4)) == 4;
                }
            }
            assertTrue(heard, "no HELLO came");
        } finally {
            client.stop();
            Log.to(null);
        }
    }

    /** A daemon that accepts nothing, such as a stopped one. */
    @Test
    void aDaemonThatDoesNotAccept() throws Exception {
        List<String> said = new CopyOnWriteArrayList<>();
        Log.to(said::add);
        Client client = new Client(new Loopback(), socket, "test", Role.DATANODE, "", Patience.USUAL);
        try {
            client.serve(List.of("/d"));
            String why = "the daemon has not accepted the connection within a second";
            await(() -> said.stream().anyMatch(line -> line.contains(why)));
        } finally {
            client.stop();
            Log.to(null);
        }
    }

    /** A folder that others may write is refused even if the right process listens. */
    @Test
    void aFileThatOthersMayWrite() throws Exception {
        Files.setPosixFilePermissions(directory, PosixFilePermissions.fromString("rwxrwxrwx"));
        refused("may be written by its group or by others", () -> new Loopback().connect(socket));
    }
}
