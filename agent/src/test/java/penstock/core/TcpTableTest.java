package penstock.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The parser of the kernel's tables, with recorded tables of a little-endian machine and with hostile text. */
@Timeout(60)
class TcpTableTest {
    static final String HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid"
            + "  timeout inode                                                     \n";
    private static final String HEADING6 = "  sl  local_address                         remote_address                "
            + "        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
    private static final String REST = " 00000000:00000000 00:00000000 00000000 ";

    static String row(String local, String remote, String state, long uid, long inode) {
        return "   0: " + local + " " + remote + " " + state + REST + String.format("%5d", uid) + "        0 " + inode
                + " 1 0000000000000000 100 0 0 10 0                     \n";
    }

    private static List<String> read(InputStream in) throws IOException {
        List<String> rows = new ArrayList<>();
        TcpTable.read(in, r -> rows.add(r.local + ":" + r.localPort + " " + r.remote + ":" + r.remotePort + " "
                + r.state + " user " + r.uid + " inode " + r.inode));
        return rows;
    }

    private static List<String> read(String text) throws IOException {
        return read(new ByteArrayInputStream(text.getBytes(StandardCharsets.ISO_8859_1)));
    }

    @Test
    void recordedTables() throws Exception {
        assertEquals(List.of(
                "2130706433:9707 0:0 10 user 1001 inode 123456",
                "0:22 0:0 10 user 0 inode 17",
                "2130706433:9707 2130706433:43210 1 user 0 inode 0",
                "3232235777:50010 3232235778:65535 6 user 4294967294 inode 4294967295"), read(HEADING
                + row("0100007F:25EB", "00000000:0000", "0A", 1001, 123456)
                + row("00000000:0016", "00000000:0000", "0A", 0, 17)
                + row("0100007F:25EB", "0100007F:A8CA", "01", 0, 0)
                + row("0101A8C0:C35A", "0201A8C0:FFFF", "06", 4294967294L, 4294967295L)));
        // IPv4 in a table of IPv6, the address of all addresses, and two others.
        assertEquals(List.of(
                "2130706433:80 2130706433:81 1 user 5 inode 6",
                "0:80 0:0 10 user 5 inode 6",
                "-1:80 -1:81 1 user 5 inode 6",
                "-1:80 0:0 10 user 5 inode 6"), read(HEADING6
                + row("0000000000000000FFFF00000100007F:0050", "0000000000000000FFFF00000100007F:0051", "01", 5, 6)
                + row("00000000000000000000000000000000:0050", "00000000000000000000000000000000:0000", "0A", 5, 6)
                + row("B80D01200000000067452301EFCDAB89:0050", "B80D01200000000067452301EFCDAB89:0051", "01", 5, 6)
                + row("00000000000000000000000001000000:0050", "00000000000000000000000000000000:0000", "0A", 5, 6)));
        assertEquals(List.of(), read(HEADING));
        assertEquals(List.of(), read(""));
    }

    @Test
    void theVisitorEndsTheReading() throws Exception {
        int[] rows = new int[1];
        String text = HEADING + row("0100007F:25EB", "00000000:0000", "0A", 1, 2) + "not a row\n";
        TcpTable.read(new ByteArrayInputStream(text.getBytes(StandardCharsets.US_ASCII)), r -> {
            rows[0]++;
            return false;
        });
        assertEquals(1, rows[0]);
    }

    @Test
    void textOfAnotherFormIsRefused() {
        String good = row("0100007F:25EB", "00000000:0000", "0A", 1, 2);
        for (String bad : new String[] {
            "\n", "x\n", "   0: 0100007F:25EB\n", good.substring(0, 60) + "\n", good.substring(0, 60),
            good.replace("0100007F:25EB", "0100007F25EB"), good.replace("0100007F", "0100007"),
            good.replace("0100007F", "010000 7F"), good.replace("0100007F", "0100007G"),
            good.replace("0100007F", "-100007F"), good.replace("25EB", "25EX"), good.replace("25EB", "25EBC"),
            good.replace("    1        0 2", "    x        0 2"), good.replace(" 2 1 0000", " -2 1 0000"),
            good.replace(" 2 1 0000", " 1234567890123456789 1 0000"),
            good.replace("0A", "\u00ff\u00ff").replace(':', '\u0000')}) {
            assertThrows(Untrusted.class, () -> read(HEADING + bad), bad);
        }
        // A state of another length is none.
        assertTrue(assertThrowsNothing(good.replace(" 0A ", " 10A ")).get(0).contains(" -1 user"));
    }

    private static List<String> assertThrowsNothing(String line) {
        try {
            return read(HEADING + line);
        } catch (IOException e) {
            throw new AssertionError(line, e);
        }
    }

    @Test
    void linesAndTablesAreBounded() throws Exception {
        String good = row("0100007F:25EB", "00000000:0000", "0A", 1, 2);
        String longest = good.trim() + " ".repeat(TcpTable.MAX_LINE - good.trim().length());
        // A line arrives in pieces: so many bytes without an end are accepted, and one more is not.
        assertEquals(1, read(pieces(HEADING, longest, "\n")).size());
        assertThrows(Untrusted.class, () -> read(pieces(HEADING, longest + " ", "\n")));

        assertThrows(Untrusted.class, () -> read(endless(HEADING, good)));
        long rows = TcpTable.MAX_BYTES / good.length();
        assertTrue(rows > 500_000, rows + " sockets");
    }

    /** A stream that returns one text with each read. */
    private static InputStream pieces(String... texts) {
        return new InputStream() {
            private int next;

            @Override
            public int read() {
                throw new UnsupportedOperationException();
            }

            @Override
            public int read(byte[] b, int offset, int length) {
                if (next == texts.length) {
                    return -1;
                }
                byte[] text = texts[next++].getBytes(StandardCharsets.US_ASCII);
                System.arraycopy(text, 0, b, offset, text.length);
                return text.length;
            }
        };
    }

    private static InputStream endless(String heading, String row) {
        byte[] rows = row.repeat(100).getBytes(StandardCharsets.US_ASCII);
        return new InputStream() {
            private boolean begun;
            private int at;

            @Override
            public int read() {
                throw new UnsupportedOperationException();
            }

            @Override
            public int read(byte[] b, int offset, int length) {
                if (!begun) {
                    begun = true;
                    System.arraycopy(heading.getBytes(StandardCharsets.US_ASCII), 0, b, offset, heading.length());
                    return heading.length();
                }
                int n = Math.min(length, rows.length - at);
                System.arraycopy(rows, at, b, offset, n);
                at = (at + n) % rows.length;
                return n;
            }
        };
    }

    /** Random changes of a table, in pieces of random lengths: rows or a refusal, and never another exception. */
    @Test
    void anyTextIsReadOrRefused() throws Exception {
        long seed = System.nanoTime();
        Random random = new Random(seed);
        byte[] table = (HEADING + row("0100007F:25EB", "00000000:0000", "0A", 1001, 123456)
                + row("0000000000000000FFFF00000100007F:0050", "0000000000000000FFFF00000100007F:0051", "01", 5, 6))
                .getBytes(StandardCharsets.US_ASCII);
        int refused = 0;
        for (int i = 0; i < 50_000; i++) {
            byte[] text = Arrays.copyOf(table, random.nextInt(4) == 0 ? random.nextInt(table.length) : table.length);
            for (int n = random.nextInt(4); n > 0 && text.length > 0; n--) {
                text[random.nextInt(text.length)] = random.nextBoolean() ? (byte) random.nextInt()
                        : (byte) "0:A \n".charAt(random.nextInt(5));
            }
            try {
                TcpTable.read(new ByteArrayInputStream(text), r -> {
                    assertTrue(r.localPort >= 0 && r.localPort <= 65535 && r.remotePort >= 0 && r.remotePort <= 65535
                            && r.local >= -1 && r.local <= 0xffffffffL && r.uid >= 0 && r.inode >= 0, "seed " + seed);
                    return true;
                });
            } catch (Untrusted e) {
                refused++;
            } catch (RuntimeException e) {
                throw new AssertionError("seed " + seed + ": " + new String(text, StandardCharsets.ISO_8859_1), e);
            }
        }
        assertTrue(refused > 1000, refused + " refused, seed " + seed);
    }

    @Test
    void thisMachinesTableHasAListeningSocket() throws Exception {
        try (ServerSocketChannel server = ServerSocketChannel.open()) {
            server.bind(new InetSocketAddress("127.0.0.1", 0));
            int port = ((InetSocketAddress) server.getLocalAddress()).getPort();
            long me = ((Integer) Files.getAttribute(Path.of("/proc/self"), "unix:uid")) & 0xffffffffL;
            List<Long> owners = new ArrayList<>();
            for (String table : new String[] {"/proc/net/tcp", "/proc/net/tcp6"}) {
                if (!Files.exists(Path.of(table))) {
                    continue; // no IPv6
                }
                try (InputStream in = Files.newInputStream(Path.of(table))) {
                    TcpTable.read(in, r -> {
                        if (r.localPort == port && r.state == TcpTable.LISTEN && r.local == TcpTable.LOOPBACK) {
                            owners.add(r.uid);
                            assertTrue(r.inode != 0);
                        }
                        return true;
                    });
                }
            }
            assertEquals(List.of(me), owners);
        }
    }
}
