package penstock.sharedfs;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.Principal;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.permission.FsPermission;

/** Attributes of files by system calls alone; Hadoop's own class starts a process for them if it lacks libhadoop. */
final class Attributes {
    /** The bits of permissions, with the sticky bit. */
    private static final int PERMISSIONS = 01777;
    /** The bits setuid and setgid, which Hadoop does not know. */
    private static final int SPECIAL = 06000;
    /** The most names of users or groups that are remembered. */
    private static final int MAX_NAMES = 10_000;

    private final Map<Object, String> users = new ConcurrentHashMap<>();
    private final Map<Object, String> groups = new ConcurrentHashMap<>();

    /** Returns the status of the local file, under the path that Hadoop knows. */
    FileStatus status(Path local, org.apache.hadoop.fs.Path path, long blockSize) throws IOException {
        Map<String, Object> a =
            Files.readAttributes(local, "unix:isDirectory,size,lastModifiedTime,lastAccessTime,mode,uid,gid");
        boolean folder = (Boolean) a.get("isDirectory");
        int mode = (Integer) a.get("mode");
        return new FileStatus(folder ? 0 : (Long) a.get("size"), folder, folder ? 0 : 1, folder ? 0 : blockSize,
            ((FileTime) a.get("lastModifiedTime")).toMillis(), ((FileTime) a.get("lastAccessTime")).toMillis(),
            new FsPermission((short) (mode & PERMISSIONS)), name(users, a.get("uid"), local, "unix:owner"),
            name(groups, a.get("gid"), local, "unix:group"), path);
    }

    /** Returns the name with this number. The directory of names may be on another machine, so names are remembered. */
    private static String name(Map<Object, String> known, Object number, Path local, String attribute)
            throws IOException {
        String name = known.get(number);
        if (name == null) {
            name = ((Principal) Files.getAttribute(local, attribute)).getName();
            if (known.size() >= MAX_NAMES) {
                known.clear();
            }
            known.put(number, name);
        }
        return name;
    }

    /** Sets the permissions, and keeps the bits that Hadoop does not know. */
    static void setMode(Path local, int mode) throws IOException {
        int old = (Integer) Files.getAttribute(local, "unix:mode");
        Files.setAttribute(local, "unix:mode", mode & PERMISSIONS | old & SPECIAL);
    }

    /** Returns the permissions with which a file is created, before the process's own mask. */
    static FileAttribute<Set<PosixFilePermission>> created(int mode) {
        Set<PosixFilePermission> set = EnumSet.noneOf(PosixFilePermission.class);
        PosixFilePermission[] inOrder = PosixFilePermission.values(); // from the owner's right to read down
        for (int i = 0; i < inOrder.length; i++) {
            if ((mode >> (inOrder.length - 1 - i) & 1) != 0) {
                set.add(inOrder[i]);
            }
        }
        return PosixFilePermissions.asFileAttribute(set);
    }

    /** Reports whether a file that is created with the mode gets another one, because of this process's own mask. */
    static boolean isMasked(int mode) {
        return (mode & UMASK) != 0;
    }

    /** This process's mask; all bits if it is not known. */
    private static final int UMASK = umask();

    private static int umask() {
        try {
            for (String line : Files.readAllLines(Paths.get("/proc/self/status"), StandardCharsets.ISO_8859_1)) {
                if (line.startsWith("Umask:")) { // Linux 4.7 and later
                    return Integer.parseInt(line.substring("Umask:".length()).trim(), 8);
                }
            }
        } catch (IOException | NumberFormatException e) {
            // Files get their mode by a system call of their own.
        }
        return 0777;
    }
}
