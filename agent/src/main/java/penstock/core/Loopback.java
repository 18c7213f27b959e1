package penstock.core;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;

/**
 * A connection to the daemon's loopback port, for JVMs without Unix sockets (before Java 16). The daemon writes the
 * port into a file beside its Unix socket.
 *
 * <p>Any user may listen at a port that the daemon no longer has. So this class verifies in the kernel's tables that
 * the listening socket belongs to the owner of the file's folder, or to root, before it connects; and that the socket
 * at the other end belongs to one of them, before the client sends or reads anything. The second check decides: that
 * socket is the only one with these two ends, and it belongs to the user whose process has accepted the connection.
 */
final class Loopback implements Transport {
    private static final String[] TABLES = {"net/tcp", "net/tcp6"};

    private final Path proc;
    /** The daemon's port, after the first call of connect. */
    private PortFile daemon;

    Loopback() {
        this(Paths.get("/proc"));
    }

    /** @param proc the process file system, except in tests /proc */
    Loopback(Path proc) {
        this.proc = proc;
    }

    @Override
    public SocketChannel connect(String socket) throws IOException {
        daemon = PortFile.read(socket);
        checkNamespace();
        checkListeners();
        SocketChannel channel = SocketChannel.open();
        try {
            channel.configureBlocking(false);
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true); // each frame is needed at once
            channel.connect(new InetSocketAddress(InetAddress.getByAddress(new byte[] {127, 0, 0, 1}), daemon.port));
            return channel;
        } catch (IOException | RuntimeException e) {
            channel.close();
            throw e;
        }
    }

    private void checkNamespace() throws IOException {
        String own;
        try {
            own = Files.readSymbolicLink(proc.resolve("self/ns/net")).toString();
        } catch (IOException | UnsupportedOperationException e) {
            return; // then nobody listens at the port here
        }
        if (!own.equals(daemon.namespace)) {
            throw new Untrusted("this process has a network of its own (" + own + "), so it cannot reach the daemon's"
                    + " port (" + daemon.namespace
                    + "): give its container the host's network, or use Java 16 or later");
        }
    }

    private void checkListeners() throws IOException {
        Listeners listeners = new Listeners();
        for (String table : TABLES) {
            read(table, listeners);
        }
        if (!listeners.found) {
            throw new Untrusted("nobody listens at port " + daemon.port + ", which " + daemon.file + " names: "
                    + "the daemon is not running");
        }
    }

    /** Checks all sockets that could get a connection to the daemon's port. */
    private final class Listeners implements TcpTable.Visitor {
        private boolean found;

        @Override
        public boolean visit(TcpTable.Row row) throws Untrusted {
            if (row.state != TcpTable.LISTEN) {
                return false; // the kernel lists those that listen first
            }
            if (row.localPort == daemon.port && row.inode != 0
                    && (row.local == TcpTable.LOOPBACK || row.local == TcpTable.ANY)) {
                checkUser(row, "listens at");
                found = true;
            }
            return true;
        }
    }

    private void checkUser(TcpTable.Row row, String does) throws Untrusted {
        if (!daemon.isTrusted(row.uid)) {
            throw new Untrusted("a process of user " + row.uid + " " + does + " port " + daemon.port + ", which "
                    + daemon.file + " names, and not a process of root"
                    + (daemon.owner == 0 ? "" : " or of user " + daemon.owner) + ": nothing was sent to it");
        }
    }

    @Override
    public boolean reaches(SocketChannel channel) throws IOException {
        int own = ((InetSocketAddress) channel.getLocalAddress()).getPort();
        if (own == daemon.port) { // a free port in the range of those that the kernel chooses
            throw new Untrusted("nobody listens at port " + own + ", and the connection leads to itself");
        }
        OtherEnd other = new OtherEnd(own);
        for (int i = 0; i < TABLES.length && !other.found; i++) {
            read(TABLES[i], other);
        }
        return other.accepted;
    }

    /** Finds and checks the socket at the other end of the connection. No two sockets have the same ends. */
    private final class OtherEnd implements TcpTable.Visitor {
        private final int own;
        private boolean found;
        private boolean accepted;

        OtherEnd(int own) {
            this.own = own;
        }

        @Override
        public boolean visit(TcpTable.Row row) throws IOException {
            if (row.localPort != daemon.port || row.remotePort != own || row.local != TcpTable.LOOPBACK
                    || row.remote != TcpTable.LOOPBACK) {
                return true;
            }
            if (row.state != TcpTable.ESTABLISHED) {
                throw new EOFException("the daemon closed the connection");
            }
            found = true;
            if (row.inode != 0) { // else it waits to be accepted, and belongs to nobody
                checkUser(row, "has accepted a connection to");
                accepted = true;
            }
            return false;
        }
    }

    private void read(String table, TcpTable.Visitor visitor) throws IOException {
        try (InputStream in = Files.newInputStream(proc.resolve(table))) {
            TcpTable.read(in, visitor);
        } catch (NoSuchFileException e) {
            if (table.equals(TABLES[0])) {
                throw e;
            } // else there is no IPv6 here
        }
    }

    @Override
    public String obstacle(String socket) {
        // A daemon that has ended in order has removed both files; it may be started again at any time.
        if (Files.exists(Paths.get(PortFile.of(socket))) || !Files.exists(Paths.get(socket))) {
            return null;
        }
        return PortFile.missing(socket);
    }

    @Override
    public String way() {
        return " by its loopback port";
    }
}
