package penstock.core;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Map;

/**
 * The file in which the daemon names its loopback port, beside its Unix socket. Its owner, and that of its folder, are
 * the users whose process is trusted at the port. So a file that somebody else could have written is refused, as is one
 * below a folder that somebody else may rename.
 */
final class PortFile {
    private static final int MAX_BYTES = 128;
    private static final int OTHERS_WRITE = 022;
    private static final int STICKY = 01000;
    private static final int KIND = 0170000;
    private static final int REGULAR = 0100000;
    /** The user that the kernel shows for all users that do not exist in a user namespace. */
    private static final long NOBODY = 65534;

    final String file;
    final int port;
    /** The network namespace in which the port is. */
    final String namespace;
    /** The owner of the folder, or of the file in a folder of root's. */
    final long owner;

    private PortFile(String file, int port, String namespace, long owner) {
        this.file = file;
        this.port = port;
        this.namespace = namespace;
        this.owner = owner;
    }

    static String of(String socket) {
        return socket + ".port";
    }

    static String missing(String socket) {
        return "there is no " + of(socket) + ": this JVM (Java " + System.getProperty("java.version")
                + ") has no Unix sockets, or the agent's transport is loopback, so set loopback to"
                + " 127.0.0.1:0 in the daemon's settings, or use Unix sockets on Java 16 or later";
    }

    boolean isTrusted(long uid) {
        return uid == 0 || uid == owner;
    }

    /** @throws Untrusted if there is no such file, or if the daemon need not have written it */
    static PortFile read(String socket) throws IOException {
        try {
            Path given = Paths.get(of(socket)).toAbsolutePath();
            Path file = given.getParent().toRealPath().resolve(given.getFileName());
            long owner = ownerOf(file);
            byte[] text = new byte[MAX_BYTES + 1];
            int length = 0;
            try (InputStream in = Files.newInputStream(file, LinkOption.NOFOLLOW_LINKS)) {
                for (int n = 0; n >= 0 && length < text.length; n = in.read(text, length, text.length - length)) {
                    length += n;
                }
            }
            return parse(of(socket), new String(text, 0, length, StandardCharsets.US_ASCII), owner);
        } catch (NoSuchFileException e) {
            throw new Untrusted(missing(socket));
        } catch (UnsupportedOperationException e) {
            throw new Untrusted("this JVM cannot tell the owner of " + of(socket) + ": " + e.getMessage());
        }
    }

    /** Returns the user that may have written the file, in addition to root. */
    private static long ownerOf(Path file) throws IOException {
        Path folder = file.getParent();
        int mode = attribute(file, "mode");
        if ((mode & KIND) != REGULAR) {
            throw new Untrusted(file + " is not a file");
        }
        if ((mode & OTHERS_WRITE) != 0) {
            throw new Untrusted(file + " may be written by its group or by others: chmod 644");
        }
        if ((attribute(folder, "mode") & OTHERS_WRITE) != 0) {
            throw new Untrusted(folder + " may be written by its group or by others, who could replace "
                    + file.getFileName() + ": chmod go-w");
        }
        long ofFile = uid(file);
        long ofFolder = uid(folder);
        if (ofFile != 0 && ofFolder != 0 && ofFile != ofFolder) {
            throw new Untrusted(file + " belongs to user " + ofFile + ", but its folder to user " + ofFolder);
        }
        for (Path above = folder.getParent(); above != null; above = above.getParent()) {
            long of = uid(above);
            boolean sticky = (attribute(above, "mode") & STICKY) != 0;
            if (of != 0 && of != ofFolder || (attribute(above, "mode") & OTHERS_WRITE) != 0 && !sticky) {
                throw new Untrusted("others than root and the owner of " + folder + " may rename folders in " + above);
            }
        }
        return ofFolder != 0 ? ofFolder : ofFile;
    }

    private static long uid(Path path) throws IOException {
        long uid = attribute(path, "uid") & 0xffffffffL;
        if (uid == NOBODY) {
            throw new Untrusted(path + " belongs to nobody that is known here: the daemon's user must exist in the user"
                    + " namespace of this process");
        }
        return uid;
    }

    private static int attribute(Path path, String name) throws IOException {
        Map<String, Object> all = Files.readAttributes(path, "unix:" + name, LinkOption.NOFOLLOW_LINKS);
        Object value = all.get(name);
        if (!(value instanceof Integer)) {
            throw new Untrusted("this JVM does not show the " + name + " of " + path);
        }
        return (Integer) value;
    }

    /** Parses one line: 127.0.0.1:PORT, the network namespace as net:[NUMBER], and the daemon's process id. */
    static PortFile parse(String file, String text, long owner) throws Untrusted {
        String[] words = text.split(" ", -1);
        if (text.length() > MAX_BYTES || words.length != 3 || !words[0].startsWith("127.0.0.1:")
                || !words[1].startsWith("net:[") || !words[1].endsWith("]") || !words[2].endsWith("\n")) {
            throw bad(file);
        }
        int port = number(file, words[0].substring("127.0.0.1:".length()), 5);
        number(file, words[1].substring("net:[".length(), words[1].length() - 1), 10);
        number(file, words[2].substring(0, words[2].length() - 1), 10);
        if (port < 1 || port > 65535) {
            throw bad(file);
        }
        return new PortFile(file, port, words[1], owner);
    }

    private static int number(String file, String digits, int most) throws Untrusted {
        if (digits.isEmpty() || digits.length() > most) {
            throw bad(file);
        }
        long n = 0;
        for (int i = 0; i < digits.length(); i++) {
            char c = digits.charAt(i);
            if (c < '0' || c > '9') {
                throw bad(file);
            }
            n = 10 * n + (c - '0');
        }
        return (int) Math.min(n, Integer.MAX_VALUE);
    }

    private static Untrusted bad(String file) {
        return new Untrusted(file + " does not name a port as the daemon does: the daemon has another release, or did"
                + " not write it");
    }
}
