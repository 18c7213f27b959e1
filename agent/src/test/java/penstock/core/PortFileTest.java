package penstock.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class PortFileTest {
    private static final String GOOD = "127.0.0.1:9708 net:[4026531840] 4711\n";
    private static final boolean ROOT = me() == 0;

    private Path directory;
    private Path folder;
    private Path socket;
    private Path file;

    private static long me() {
        try {
            return ((Integer) Files.getAttribute(Path.of("/proc/self"), "unix:uid")) & 0xffffffffL;
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    @BeforeEach
    void begin() throws Exception {
        directory = Files.createTempDirectory("penstock").toRealPath();
        folder = Files.createDirectory(directory.resolve("run"));
        mode(folder, "rwxr-xr-x");
        socket = folder.resolve("agent.sock");
        file = folder.resolve("agent.sock.port");
        write(GOOD);
    }

    @AfterEach
    void end() throws Exception {
        Files.deleteIfExists(directory.resolve("link"));
        Files.deleteIfExists(file);
        Files.deleteIfExists(folder.resolve("other"));
        Files.delete(folder);
        Files.delete(directory);
    }

    private void write(String text) throws IOException {
        Files.writeString(file, text);
        mode(file, "rw-r--r--");
    }

    private static void mode(Path path, String mode) throws IOException {
        Files.setPosixFilePermissions(path, PosixFilePermissions.fromString(mode));
    }

    private PortFile read() throws IOException {
        return PortFile.read(socket.toString());
    }

    private void refused(String why) {
        String message = assertThrows(Untrusted.class, this::read).getMessage();
        assertTrue(message.contains(why), message);
    }

    @Test
    void theDaemonsFile() throws Exception {
        PortFile f = read();
        assertEquals(9708, f.port);
        assertEquals("net:[4026531840]", f.namespace);
        assertEquals(me(), f.owner);
        assertTrue(f.isTrusted(0));
        assertTrue(f.isTrusted(me()));
        assertFalse(f.isTrusted(me() + 1));
    }

    @Test
    void noFile() throws Exception {
        Files.delete(file);
        refused("there is no " + file + ": this JVM (Java " + System.getProperty("java.version")
                + ") has no Unix sockets, or the agent's transport is loopback, so set loopback to"
                + " 127.0.0.1:0 in the daemon's settings, or use Unix sockets on Java 16 or later");
        String nowhere = directory.resolve("none/agent.sock").toString();
        assertThrows(Untrusted.class, () -> PortFile.read(nowhere));
    }

    @Test
    void aFileThatOthersMayWrite() throws Exception {
        for (String others : new String[] {"rw-rw-r--", "rw-r--rw-"}) {
            mode(file, others);
            refused(file + " may be written by its group or by others");
        }
        mode(file, "rw-r--r--");
        for (String others : new String[] {"rwxrwxr-x", "rwxr-xrwx"}) {
            mode(folder, others);
            refused(folder + " may be written by its group or by others");
        }
        mode(folder, "rwxr-xr-x");
        for (String others : new String[] {"rwxrwxr-x", "rwxr-xrwx"}) {
            mode(directory, others);
            refused("may rename folders in " + directory);
        }
        mode(directory, "rwxr-xr-x");
        read();
        // As in /tmp, nobody can rename another user's folder.
        Files.setAttribute(directory, "unix:mode", 01777);
        read();
        Files.setAttribute(folder, "unix:mode", 01777); // but anybody could have made the file
        refused(folder + " may be written by its group or by others");
        mode(folder, "rwxr-xr-x");
    }

    @Test
    void aFileOfAnotherUser() throws Exception {
        if (!ROOT) {
            return; // only root can give files away
        }
        own(file, 4711);
        assertEquals(4711, read().owner); // root has put it into its own folder
        own(folder, 4711);
        assertEquals(4711, read().owner);
        own(file, 0);
        assertEquals(4711, read().owner); // the folder's owner could have replaced it
        own(file, 4712);
        refused(file + " belongs to user 4712, but its folder to user 4711");
        own(file, 4711);
        own(directory, 4712);
        refused("may rename folders in " + directory);
        own(directory, 4711);
        read();
        own(directory, 0);
        own(folder, 65534);
        own(file, 65534);
        refused("belongs to nobody that is known here");
    }

    private static void own(Path path, int uid) throws IOException {
        Files.setAttribute(path, "unix:uid", uid);
    }

    @Test
    void linksAndOtherFiles() throws Exception {
        Path other = folder.resolve("other");
        Files.move(file, other);
        Files.createSymbolicLink(file, other);
        refused(file + " is not a file");
        Files.delete(file);
        Files.createDirectory(file);
        refused(file + " is not a file");
        Files.delete(file);
        write(GOOD);
        // A link to the folder is followed, and the folder's own path is examined.
        Path link = Files.createSymbolicLink(directory.resolve("link"), folder);
        assertEquals(9708, PortFile.read(link.resolve("agent.sock").toString()).port);
        mode(folder, "rwxrwxrwx");
        assertThrows(Untrusted.class, () -> PortFile.read(link.resolve("agent.sock").toString()));
        mode(folder, "rwxr-xr-x");
    }

    @Test
    void contents() throws Exception {
        for (int port : new int[] {1, 80, 65535}) {
            write(GOOD.replace("9708", "" + port));
            assertEquals(port, read().port);
        }
        for (String bad : new String[] {
            "", "\n", "9708\n", GOOD.trim(), GOOD + "\n", GOOD + GOOD, " " + GOOD, GOOD.replace("9708", "0"),
            GOOD.replace("9708", "65536"), GOOD.replace("9708", "99999"), GOOD.replace("9708", "123456"),
            GOOD.replace("9708", ""), GOOD.replace("9708", "-9"), GOOD.replace("9708", "+9"),
            GOOD.replace("9708", "9708\u0661"), GOOD.replace("127.0.0.1", "127.0.0.2"),
            GOOD.replace("127.0.0.1", "0.0.0.0"), GOOD.replace("127.0.0.1", "evil.example"),
            GOOD.replace("net:", "pid:"), GOOD.replace("]", ""), GOOD.replace("4026531840", "x"),
            GOOD.replace("4026531840", ""), GOOD.replace("4711", "x"), GOOD.replace(" 4711", ""),
            GOOD.replace("4711", "47 11"), GOOD.replace(" ", "\t"),
            "127.0.0.1:9708 net:[1] " + "1".repeat(200) + "\n", "x".repeat(1 << 20)}) {
            write(bad);
            refused("does not name a port as the daemon does");
        }
    }

    /** Random changes: a port that the text contains, or a refusal. */
    @Test
    void anyContentIsReadOrRefused() throws Exception {
        long seed = System.nanoTime();
        Random random = new Random(seed);
        for (int i = 0; i < 100_000; i++) {
            StringBuilder text = new StringBuilder(GOOD);
            for (int n = random.nextInt(4); n > 0; n--) {
                int at = random.nextInt(text.length());
                if (random.nextBoolean()) {
                    text.setCharAt(at, (char) random.nextInt(128));
                } else {
                    text.deleteCharAt(at);
                }
            }
            try {
                PortFile f = PortFile.parse("f", text.toString(), 1);
                assertTrue(f.port >= 1 && f.port <= 65535 && text.toString().startsWith("127.0.0.1:")
                        && text.toString().contains(" " + f.namespace + " "), "seed " + seed + ": " + text);
            } catch (Untrusted e) {
                assertTrue(e.getMessage().startsWith("f does not name"), "seed " + seed);
            } catch (RuntimeException e) {
                throw new AssertionError("seed " + seed + ": " + text, e);
            }
        }
    }
}
