package penstock.core;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteOrder;

/** Reads the kernel's tables of TCP sockets, /proc/net/tcp and /proc/net/tcp6. */
final class TcpTable {
    static final int ESTABLISHED = 1;
    static final int LISTEN = 10;
    /** Addresses of IPv4 as numbers, also if the socket is one of IPv6. ANY stands for the address of all addresses. */
    static final long LOOPBACK = 0x7f000001L;
    static final long ANY = 0;
    /** Other addresses of IPv6. */
    static final long OTHER = -1;
    /** About 800,000 sockets. */
    static final long MAX_BYTES = 128 << 20;
    static final int MAX_LINE = 1 << 10;
    private static final int FIELDS = 10;
    private static final boolean SWAPPED = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;

    private TcpTable() { }

    /** A socket. */
    static final class Row {
        long local;
        int localPort;
        long remote;
        int remotePort;
        int state;
        long uid;
        /** 0 if no process has the socket open; the user is then root. */
        long inode;
    }

    interface Visitor {
        /**
         * Called for each socket.
         *
         * @param row is valid until the method returns
         * @return false ends the reading
         */
        boolean visit(Row row) throws IOException;
    }

    /**
     * Calls the visitor for each row, until it returns false.
     *
     * @throws Untrusted if the text is not such a table, or if it is too long
     */
    static void read(InputStream in, Visitor visitor) throws IOException {
        byte[] buffer = new byte[64 << 10];
        Row row = new Row();
        int filled = 0;
        long total = 0;
        boolean heading = true;
        while (true) {
            int n = in.read(buffer, filled, buffer.length - filled);
            if (n < 0) {
                if (filled > 0) {
                    throw new Untrusted("the kernel's table of sockets ends within a line");
                }
                return;
            }
            total += n;
            if (total > MAX_BYTES) {
                throw new Untrusted("the kernel's table of sockets has more than " + MAX_BYTES + " bytes");
            }
            int end = filled + n;
            int start = 0;
            for (int i = filled; i < end; i++) {
                if (buffer[i] != '\n') {
                    continue;
                }
                if (!heading) {
                    parse(buffer, start, i, row);
                    if (!visitor.visit(row)) {
                        return;
                    }
                }
                heading = false;
                start = i + 1;
            }
            filled = end - start;
            if (filled > MAX_LINE) {
                throw new Untrusted("a line of the kernel's table of sockets has more than " + MAX_LINE + " bytes");
            }
            System.arraycopy(buffer, start, buffer, 0, filled);
        }
    }

    /** Parses a line: sl local remote state queues timer retransmits uid timeout inode, and more. */
    private static void parse(byte[] b, int from, int to, Row row) throws Untrusted {
        int at = from;
        for (int field = 0; field < FIELDS; field++) {
            while (at < to && b[at] == ' ') {
                at++;
            }
            int begin = at;
            while (at < to && b[at] != ' ') {
                at++;
            }
            if (begin == at) {
                throw new Untrusted("a line of the kernel's table of sockets has only " + field + " fields");
            }
            switch (field) {
                case 1:
                    row.local = address(b, begin, at);
                    row.localPort = (int) number(b, at - 4, at, 16);
                    break;
                case 2:
                    row.remote = address(b, begin, at);
                    row.remotePort = (int) number(b, at - 4, at, 16);
                    break;
                case 3:
                    row.state = at - begin == 2 ? (int) number(b, begin, at, 16) : -1;
                    break;
                case 7:
                    row.uid = number(b, begin, at, 10);
                    break;
                case 9:
                    row.inode = number(b, begin, at, 10);
                    break;
                default: // not needed
            }
        }
    }

    /**
     * Parses ADDRESS:PORT without its port. The kernel prints an address as words of 32 bits in the machine's order,
     * whose bytes are in the network's order.
     */
    private static long address(byte[] b, int from, int to) throws Untrusted {
        int end = to - 5;
        if (end - from != 8 && end - from != 32 || b[end] != ':') {
            throw bad();
        }
        long last = word(b, end - 8);
        if (end - from == 8) {
            return last;
        }
        long first = word(b, from) | word(b, from + 8);
        long third = word(b, from + 16);
        if (first != 0 || third != 0xffffL && (third != 0 || last != 0)) {
            return OTHER;
        }
        return last;
    }

    private static long word(byte[] b, int from) throws Untrusted {
        long n = number(b, from, from + 8, 16);
        return SWAPPED ? Integer.reverseBytes((int) n) & 0xffffffffL : n;
    }

    private static long number(byte[] b, int from, int to, int base) throws Untrusted {
        long n = 0;
        if (from >= to || to - from > 18) {
            throw bad();
        }
        for (int i = from; i < to; i++) {
            int digit = b[i] < 0 ? -1 : Character.digit(b[i], base);
            if (digit < 0 || n > Long.MAX_VALUE / 16 - 1) {
                throw bad();
            }
            n = n * base + digit;
        }
        return n;
    }

    private static Untrusted bad() {
        return new Untrusted("the kernel's table of sockets has a line of another form");
    }
}
