package penstock.sharedfs;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.URI;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributeView;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.UserPrincipalLookupService;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.BufferedFSInputStream;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.security.AccessControlException;
import org.apache.hadoop.util.Progressable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import penstock.sharedfs.layout.Counts;
import penstock.sharedfs.layout.Locator;
import penstock.sharedfs.layout.Placement;
import penstock.sharedfs.layout.Setup;
import penstock.sharedfs.turns.FileTurns;
import penstock.sharedfs.turns.Turns;

/**
 * The file system {@code shared:///}, whose root is a folder of a mounted parallel file system.
 *
 * <p>All processes act with the rights of their own user, as everywhere on a mount: this class adds none and checks
 * none. Symbolic links are followed, except by delete.
 *
 * <p>A file is created, and an existing file is replaced, by one system call each, so of several writers that create
 * the same file without overwriting, one succeeds, and a reader of a replaced file keeps the old one. Rename is one
 * system call after its checks.
 */
public final class SharedFileSystem extends FileSystem {
    static final String SCHEME = "shared";
    /** The folder that is the root. */
    public static final String MOUNT = "penstock.sharedfs.mount";
    /** Whether to refuse a folder of the machine's root file system, where nothing is mounted. */
    static final String MOUNT_REQUIRED = "penstock.sharedfs.mount.required";
    static final String BLOCK_SIZE = "penstock.sharedfs.block-size";
    /** The smallest buffer, in bytes. Hadoop's default of 4 KiB costs a system call, or a message, for each 4 KiB. */
    static final int LEAST_BUFFER = 64 << 10;
    private static final long DEFAULT_BLOCK = 128L << 20;
    private static final URI NAME = URI.create(SCHEME + ":///");
    private static final String[] NOWHERE = {};
    private static final Logger LOG = LoggerFactory.getLogger(SharedFileSystem.class);

    private java.nio.file.Path mount;
    private long blockSize;
    /** Null without a layout. */
    private Locator locator;
    /** Null if reads and writes take no turns. */
    private Turns turns;
    private Path workingDirectory;
    private final Attributes attributes = new Attributes();

    @Override
    public String getScheme() {
        return SCHEME;
    }

    @Override
    public URI getUri() {
        return NAME;
    }

    @Override
    public void initialize(URI uri, Configuration conf) throws IOException {
        super.initialize(uri, conf);
        setConf(conf);
        if (uri.getAuthority() != null) {
            throw new IOException(uri + " names a host; write shared:///PATH. There is one mount, set by " + MOUNT);
        }
        mount = root(conf);
        locator = Setup.locator(conf, mount.toString());
        blockSize = conf.getLongBytes(BLOCK_SIZE, locator == null ? DEFAULT_BLOCK : locator.blockSize());
        if (blockSize <= 0) {
            throw new IOException(BLOCK_SIZE + " is " + blockSize + "; it must be more than 0");
        }
        turns = Turns.find(conf, System.getenv(), locator, mount);
        workingDirectory = getHomeDirectory();
        Counts.register();
    }

    private static java.nio.file.Path root(Configuration conf) throws IOException {
        String setting = conf.getTrimmed(MOUNT, "");
        if (!setting.startsWith("/")) {
            throw new IOException("set " + MOUNT + " to the absolute path of a mounted parallel file system");
        }
        java.nio.file.Path root;
        try {
            root = Paths.get(setting).normalize();
        } catch (InvalidPathException e) {
            throw Errors.unwritable(MOUNT + ": " + setting, e);
        }
        try {
            root = root.toRealPath();
            if (!Files.isDirectory(root)) {
                throw new IOException(MOUNT + ": " + root + " is not a folder");
            }
            // If the file system is not mounted, files would be written to the machine's own disk, each node's apart.
            if (conf.getBoolean(MOUNT_REQUIRED, true)
                    && Files.getAttribute(root, "unix:dev").equals(Files.getAttribute(Paths.get("/"), "unix:dev"))) {
                throw new IOException(MOUNT + ": nothing is mounted at " + root + " or above it. Mount the file system"
                    + ", or set " + MOUNT_REQUIRED + " to false");
            }
        } catch (NoSuchFileException e) {
            throw new FileNotFoundException(MOUNT + ": there is no folder " + root);
        }
        return root;
    }

    /** Returns the file in the mount. */
    private java.nio.file.Path local(Path f) throws IOException {
        checkPath(f);
        String path = new Path(workingDirectory, f).toUri().getPath();
        java.nio.file.Path local;
        try {
            local = mount.resolve(path.substring(1)).normalize();
        } catch (InvalidPathException e) {
            throw Errors.unwritable(f.toString(), e);
        }
        if (!local.startsWith(mount)) {
            throw new IOException(f + " is above the root");
        }
        return local;
    }

    private boolean isRoot(java.nio.file.Path local) {
        return local.equals(mount);
    }

    @Override
    public FSDataInputStream open(Path f, int bufferSize) throws IOException {
        java.nio.file.Path local = local(f);
        RandomAccessFile file;
        try {
            file = new RandomAccessFile(local.toFile(), "r");
        } catch (FileNotFoundException e) {
            // Java throws this for any reason.
            if (Files.isRegularFile(local) && !Files.isReadable(local)) {
                throw new AccessControlException("permission denied: " + f);
            }
            throw (IOException) new FileNotFoundException("cannot open " + f + (Files.isDirectory(local)
                ? ": it is a folder" : Files.exists(local) ? "" : ": it does not exist")).initCause(e);
        }
        statistics.incrementReadOps(1);
        FileTurns ofFile = turns == null ? null
            : new FileTurns(turns,
                new Locator.File(local.toString(), file.length(), local.toFile().lastModified()), false);
        return new FSDataInputStream(
            new BufferedFSInputStream(new SharedInput(file, statistics, ofFile), bufferOf(bufferSize)));
    }

    /** Returns the size of a file's buffer. With turns, a full buffer is one turn. */
    private int bufferOf(int wanted) {
        return turns == null ? Math.max(wanted, LEAST_BUFFER) : turns.most();
    }

    @Override
    public FSDataOutputStream create(Path f, FsPermission permission, boolean overwrite, int bufferSize,
            short replication, long block, Progressable progress) throws IOException {
        Path parent = f.getParent();
        try {
            return created(f, permission, overwrite, bufferSize);
        } catch (FileNotFoundException e) {
            if (parent == null) {
                throw e;
            }
            mkdirs(parent, FsPermission.getDirDefault());
            return created(f, permission, overwrite, bufferSize);
        }
    }

    @Override
    public FSDataOutputStream createNonRecursive(Path f, FsPermission permission,
            EnumSet<CreateFlag> flags, int bufferSize, short replication, long block,
            Progressable progress) throws IOException {
        return created(f, permission, flags.contains(CreateFlag.OVERWRITE), bufferSize);
    }

    private FSDataOutputStream created(Path f, FsPermission permission, boolean overwrite, int bufferSize)
            throws IOException {
        java.nio.file.Path local = local(f);
        int mode = masked(permission == null ? FsPermission.getFileDefault() : permission);
        try {
            FileChannel channel = newFile(local, mode, overwrite);
            statistics.incrementWriteOps(1);
            return output(local, channel, bufferSize, 0);
        } catch (IOException e) {
            throw Errors.translated(e, f);
        }
    }

    private FSDataOutputStream output(java.nio.file.Path local, FileChannel channel, int bufferSize, long from)
            throws IOException {
        FileTurns ofFile = turns == null ? null : new FileTurns(turns, new Locator.File(local.toString(), 0, 0), true);
        return new FSDataOutputStream(new SharedOutput(channel, local, bufferOf(bufferSize), from, ofFile), statistics, from);
    }

    /** Returns a new, empty file. One that exists is replaced, or is an error. */
    private FileChannel newFile(java.nio.file.Path named, int mode, boolean overwrite) throws IOException {
        // A link is followed. A link to nothing is replaced.
        java.nio.file.Path local =
            overwrite && Files.isSymbolicLink(named) && Files.exists(named) ? named.toRealPath() : named;
        boolean near = locator != null && locator.createsNear();
        if (!near) {
            try {
                return opened(local, mode, true);
            } catch (java.nio.file.FileAlreadyExistsException e) {
                if (!overwrite || Files.isDirectory(local)) {
                    throw e;
                }
            }
        } else if (Files.exists(local) && (!overwrite || Files.isDirectory(local))) {
            throw new java.nio.file.FileAlreadyExistsException(local.toString());
        } else if (!Files.isDirectory(local.getParent())) {
            // Otherwise the tool would fail, which is taken for a failure of the file system.
            throw new NoSuchFileException(local.toString());
        }
        // The file gets its name when it is complete, in one step.
        java.nio.file.Path temporary = local.resolveSibling("._penstock_" + UUID.randomUUID());
        boolean done = false;
        FileChannel channel = null;
        try {
            channel = opened(temporary, mode, !near || !locator.createNear(temporary.toString()));
            if (overwrite) {
                Files.move(temporary, local, StandardCopyOption.ATOMIC_MOVE);
            } else {
                Files.createLink(local, temporary);
            }
            done = true; // from now on, an error would leave an empty file that was not created
        } finally {
            if (!done) {
                if (channel != null) {
                    channel.close();
                }
                Files.deleteIfExists(temporary);
            }
        }
        if (!overwrite) {
            try {
                Files.deleteIfExists(temporary);
            } catch (IOException e) {
                LOG.warn("cannot delete {}, another name of {}: {}", temporary, local, e.toString());
            }
        }
        return channel;
    }

    /** Opens the file for writing, with the mode. */
    private FileChannel opened(java.nio.file.Path local, int mode, boolean create) throws IOException {
        FileChannel channel = create
            ? FileChannel.open(local, EnumSet.of(StandardOpenOption.WRITE, StandardOpenOption.CREATE_NEW),
                Attributes.created(mode))
            : FileChannel.open(local, StandardOpenOption.WRITE);
        boolean done = false;
        try {
            if (!create || Attributes.isMasked(mode)) {
                Files.setAttribute(local, "unix:mode", mode);
            }
            done = true;
            return channel;
        } finally {
            if (!done) {
                channel.close();
                Files.deleteIfExists(local);
            }
        }
    }

    private int masked(FsPermission permission) {
        return permission.applyUMask(FsPermission.getUMask(getConf())).toShort();
    }

    @Override
    public FSDataOutputStream append(Path f, int bufferSize, Progressable progress) throws IOException {
        java.nio.file.Path local = local(f);
        if (Files.isDirectory(local)) {
            throw new IOException("cannot append to the folder " + f);
        }
        try {
            FileChannel channel = FileChannel.open(local, StandardOpenOption.WRITE, StandardOpenOption.APPEND);
            statistics.incrementWriteOps(1);
            return output(local, channel, bufferSize, channel.size());
        } catch (IOException e) {
            throw Errors.translated(e, f);
        }
    }

    @Override
    public boolean truncate(Path f, long newLength) throws IOException {
        java.nio.file.Path local = local(f);
        if (Files.isDirectory(local)) {
            throw new IOException("cannot truncate the folder " + f);
        }
        try (FileChannel channel = FileChannel.open(local, StandardOpenOption.WRITE)) {
            if (newLength < 0 || newLength > channel.size()) {
                throw new IllegalArgumentException("cannot truncate " + f + " of " + channel.size() + " bytes to "
                    + newLength);
            }
            channel.truncate(newLength);
            statistics.incrementWriteOps(1);
            return true;
        } catch (IOException e) {
            throw Errors.translated(e, f);
        }
    }

    /**
     * Renames as HDFS does: into a folder that exists, never over a file that exists. The check and the rename are two
     * steps: a file that another process creates at dst between them is replaced.
     */
    @Override
    public boolean rename(Path src, Path dst) throws IOException {
        java.nio.file.Path from = local(src);
        java.nio.file.Path to = local(dst);
        if (isRoot(from) || !Files.exists(from, LinkOption.NOFOLLOW_LINKS)) {
            return false;
        }
        if (from.equals(to)) {
            return !Files.isDirectory(from);
        }
        if (Files.isDirectory(to)) {
            to = to.resolve(from.getFileName());
        }
        if (to.startsWith(from) || Files.exists(to, LinkOption.NOFOLLOW_LINKS)
                || !Files.isDirectory(to.getParent())) {
            return false;
        }
        move(src, from, to);
        return true;
    }

    private void move(Path src, java.nio.file.Path from, java.nio.file.Path to) throws IOException {
        try {
            Files.move(from, to, StandardCopyOption.ATOMIC_MOVE);
            statistics.incrementWriteOps(1);
        } catch (IOException e) {
            throw Errors.translated(e, src);
        }
    }

    /** Renames to exactly dst. With OVERWRITE, a file or an empty folder at dst is replaced in one step. */
    @Override
    @SuppressWarnings("deprecation") // to callers: FileContext is its only one
    public void rename(Path src, Path dst, Options.Rename... options) throws IOException {
        boolean overwrite = false;
        for (Options.Rename option : options) {
            overwrite |= option == Options.Rename.OVERWRITE;
        }
        java.nio.file.Path from = local(src);
        java.nio.file.Path to = local(dst);
        FileStatus source = getFileStatus(src);
        if (from.equals(to)) {
            throw new FileAlreadyExistsException(src + " and " + dst + " are the same");
        }
        if (isRoot(from) || isRoot(to) || to.startsWith(from)) {
            throw new IOException("cannot rename " + src + " to " + dst + ", which is the root or below the source");
        }
        if (!getFileStatus(dst.getParent()).isDirectory()) {
            throw new ParentNotDirectoryException(dst.getParent() + " is not a folder");
        }
        try {
            FileStatus target = getFileStatus(dst);
            if (source.isDirectory() != target.isDirectory()) {
                throw new IOException("of " + src + " and " + dst + ", only one is a folder");
            }
            if (!overwrite) {
                throw new FileAlreadyExistsException(dst + " exists");
            }
        } catch (FileNotFoundException e) {
            // The usual case.
        }
        try {
            move(dst, from, to);
        } catch (FileSystemException e) {
            if (Files.isDirectory(to) && !isEmpty(to)) {
                throw (IOException) new PathIsNotEmptyDirectoryException(dst.toString()).initCause(e);
            }
            throw e;
        }
    }

    @Override
    public boolean delete(Path f, boolean recursive) throws IOException {
        java.nio.file.Path local = local(f);
        boolean folder = Files.isDirectory(local, LinkOption.NOFOLLOW_LINKS);
        try {
            if (folder && (recursive || isRoot(local))) {
                if (isRoot(local)) {
                    return deleteRoot(f, local, recursive);
                }
                TreeDeletion.delete(local);
            } else {
                Files.delete(local);
            }
            statistics.incrementWriteOps(1);
            return true;
        } catch (NoSuchFileException e) {
            return false;
        } catch (IOException e) {
            if (Errors.isNotADirectory(e)) {
                return false;
            }
            throw Errors.translated(e, f);
        }
    }

    /** The root stays, and so does what is in it: a mount usually belongs to others too. */
    private static boolean deleteRoot(Path f, java.nio.file.Path local, boolean recursive) throws IOException {
        if (!recursive && !isEmpty(local)) {
            throw new PathIsNotEmptyDirectoryException(f.toString());
        }
        return false;
    }

    private static boolean isEmpty(java.nio.file.Path folder) throws IOException {
        try (DirectoryStream<java.nio.file.Path> entries = Files.newDirectoryStream(folder)) {
            return !entries.iterator().hasNext();
        }
    }

    @Override
    public boolean mkdirs(Path f, FsPermission permission) throws IOException {
        java.nio.file.Path local = local(f);
        try {
            makeFolders(local, masked(permission == null ? FsPermission.getDirDefault() : permission));
            statistics.incrementWriteOps(1);
            return true;
        } catch (IOException e) {
            throw Errors.translated(e, f);
        }
    }

    private void makeFolders(java.nio.file.Path local, int mode) throws IOException {
        if (Files.isDirectory(local)) {
            return;
        }
        try {
            makeFolder(local, mode);
        } catch (NoSuchFileException e) {
            if (isRoot(local)) {
                throw e;
            }
            makeFolders(local.getParent(), masked(FsPermission.getDirDefault()));
            makeFolder(local, mode);
        }
    }

    private void makeFolder(java.nio.file.Path local, int mode) throws IOException {
        try {
            Files.createDirectory(local, Attributes.created(mode));
            if (Attributes.isMasked(mode)) {
                Attributes.setMode(local, mode);
            }
        } catch (java.nio.file.FileAlreadyExistsException e) {
            // Another process may have made it.
            if (!Files.isDirectory(local)) {
                throw e;
            }
        }
    }

    @Override
    public FileStatus getFileStatus(Path f) throws IOException {
        java.nio.file.Path local = local(f);
        statistics.incrementReadOps(1);
        try {
            return status(f, local);
        } catch (IOException e) {
            if (Errors.isNotADirectory(e)) {
                throw (IOException) new FileNotFoundException("there is no " + f).initCause(e);
            }
            throw Errors.translated(e, f);
        }
    }

    private FileStatus status(Path f, java.nio.file.Path local) throws IOException {
        return attributes.status(local, f.makeQualified(NAME, workingDirectory), blockSize);
    }

    @Override
    public FileStatus[] listStatus(Path f) throws IOException {
        java.nio.file.Path local = local(f);
        FileStatus self = getFileStatus(f);
        if (!self.isDirectory()) {
            return new FileStatus[] {self};
        }
        List<FileStatus> found = new ArrayList<>();
        List<Locator.File> files = new ArrayList<>();
        try (DirectoryStream<java.nio.file.Path> entries = Files.newDirectoryStream(local)) {
            for (java.nio.file.Path entry : entries) {
                try {
                    // A name may contain a colon, which would be a scheme.
                    Path child = new Path(self.getPath(), new Path(null, null, entry.getFileName().toString()));
                    FileStatus status = status(child, entry);
                    found.add(status);
                    if (locator != null && status.isFile()) {
                        files.add(versionOf(status, entry));
                    }
                } catch (FileSystemException e) {
                    // It has been deleted meanwhile, or is a link that leads nowhere: to nothing, to itself, below a
                    // file, or to where this user has no right. Anybody who may write here could have made such a link.
                    if (!(e instanceof NoSuchFileException) && !Files.isSymbolicLink(entry)) {
                        throw e;
                    }
                }
            }
        } catch (java.nio.file.DirectoryIteratorException e) {
            throw Errors.translated(e.getCause(), f);
        } catch (IOException e) {
            throw Errors.translated(e, f);
        }
        if (locator != null) {
            locator.listed(local.toString(), files);
        }
        return found.toArray(new FileStatus[0]);
    }

    private static Locator.File versionOf(FileStatus status, java.nio.file.Path local) {
        return new Locator.File(local.toString(), status.getLen(), status.getModificationTime());
    }

    /**
     * Returns the blocks of the range, each with the hosts that have most of its bytes. A block has no hosts if there
     * are none, or if the layout is not known.
     */
    @Override
    public BlockLocation[] getFileBlockLocations(FileStatus file, long start, long len) throws IOException {
        if (file == null) {
            return null;
        }
        if (start < 0 || len < 0) {
            throw new IllegalArgumentException("a range of " + len + " bytes from " + start);
        }
        long length = file.getLen();
        if (start >= length || file.isDirectory()) {
            return new BlockLocation[0];
        }
        long end = len > length - start ? length : start + len;
        Placement placement = locator == null ? null : locator.placement(versionOf(file, local(file.getPath())));
        List<BlockLocation> blocks = new ArrayList<>();
        for (long from = start / blockSize * blockSize; from < end; from += blockSize) {
            long to = Math.min(from + blockSize, length);
            String[] hosts = placement == null ? NOWHERE : locator.hosts(placement, from, to);
            blocks.add(new BlockLocation(hosts, hosts, from, to - from));
        }
        return blocks.toArray(new BlockLocation[0]);
    }

    @Override
    public void setPermission(Path f, FsPermission permission) throws IOException {
        try {
            Attributes.setMode(local(f), permission.toShort());
        } catch (IOException e) {
            throw Errors.translated(e, f);
        }
    }

    @Override
    public void setOwner(Path f, String user, String group) throws IOException {
        java.nio.file.Path local = local(f);
        UserPrincipalLookupService names = local.getFileSystem().getUserPrincipalLookupService();
        PosixFileAttributeView view = Files.getFileAttributeView(local, PosixFileAttributeView.class);
        try {
            if (user != null && !user.isEmpty()) {
                view.setOwner(names.lookupPrincipalByName(user));
            }
            if (group != null && !group.isEmpty()) {
                view.setGroup(names.lookupPrincipalByGroupName(group));
            }
        } catch (IOException e) {
            throw Errors.translated(e, f);
        }
    }

    @Override
    public void setTimes(Path f, long modified, long accessed) throws IOException {
        try {
            Files.getFileAttributeView(local(f), BasicFileAttributeView.class).setTimes(
                modified >= 0 ? FileTime.fromMillis(modified) : null,
                accessed >= 0 ? FileTime.fromMillis(accessed) : null, null);
        } catch (IOException e) {
            throw Errors.translated(e, f);
        }
    }

    @Override
    public FsStatus getStatus(Path f) throws IOException {
        File folder = local(f == null ? new Path("/") : f).toFile();
        long all = folder.getTotalSpace();
        return new FsStatus(all, all - folder.getFreeSpace(), folder.getUsableSpace());
    }

    @Override
    public long getDefaultBlockSize(Path f) {
        return blockSize;
    }

    @Override
    @Deprecated
    public long getDefaultBlockSize() {
        return blockSize;
    }

    @Override
    public void setWorkingDirectory(Path folder) {
        workingDirectory = new Path(workingDirectory, folder);
    }

    @Override
    public Path getWorkingDirectory() {
        return workingDirectory;
    }

    @Override
    public boolean hasPathCapability(Path f, String capability) throws IOException {
        switch (capability) {
            case CommonPathCapabilities.FS_APPEND:
            case CommonPathCapabilities.FS_PERMISSIONS:
            case CommonPathCapabilities.FS_TRUNCATE:
                return true;
            default:
                return super.hasPathCapability(f, capability);
        }
    }
}
