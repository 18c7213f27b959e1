package penstock.sharedfs;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileSystemException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.SecureDirectoryStream;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributeView;
import java.nio.file.attribute.BasicFileAttributes;

/**
 * Deletes a folder with its contents. During the deletion, another process may replace a folder inside by a link. A
 * deletion by path would then delete the files behind the link. So each folder is opened without following a link, and
 * its contents are deleted relative to the open folder. A file that another process deletes first is no error.
 */
final class TreeDeletion {
    private TreeDeletion() { }

    /** Deletes the folder with its contents. If the path is a link, only the link is deleted. */
    static void delete(Path top) throws IOException {
        try (DirectoryStream<Path> parent = Files.newDirectoryStream(top.getParent())) {
            if (parent instanceof SecureDirectoryStream) {
                delete((SecureDirectoryStream<Path>) parent, top.getFileName());
                return;
            }
        }
        deleteByPath(top);
    }

    private static void delete(SecureDirectoryStream<Path> parent, Path name) throws IOException {
        try {
            if (isFolder(parent, name)) {
                try {
                    empty(parent, name);
                    parent.deleteDirectory(name);
                    return;
                } catch (FileSystemException e) {
                    if (isFolder(parent, name)) {
                        throw e;
                    } // else something else is now in its place
                }
            }
            parent.deleteFile(name);
        } catch (NoSuchFileException e) {
            // Another process has deleted it.
        }
    }

    private static boolean isFolder(SecureDirectoryStream<Path> parent, Path name) throws IOException {
        return parent.getFileAttributeView(name, BasicFileAttributeView.class, LinkOption.NOFOLLOW_LINKS)
            .readAttributes().isDirectory();
    }

    private static void empty(SecureDirectoryStream<Path> parent, Path name) throws IOException {
        try (SecureDirectoryStream<Path> folder = parent.newDirectoryStream(name, LinkOption.NOFOLLOW_LINKS)) {
            for (Path each : folder) {
                delete(folder, each.getFileName());
            }
        } catch (java.nio.file.DirectoryIteratorException e) {
            throw e.getCause();
        }
    }

    /** Deletes by path, on systems that cannot open a folder relative to another one. */
    private static void deleteByPath(Path top) throws IOException {
        Files.walkFileTree(top, new SimpleFileVisitor<Path>() {
            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes a) throws IOException {
                Files.deleteIfExists(file);
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult visitFileFailed(Path file, IOException e) throws IOException {
                if (e instanceof NoSuchFileException) {
                    return FileVisitResult.CONTINUE;
                }
                throw e;
            }

            @Override
            public FileVisitResult postVisitDirectory(Path folder, IOException e) throws IOException {
                if (e != null && !(e instanceof NoSuchFileException)) {
                    throw e;
                }
                Files.deleteIfExists(folder);
                return FileVisitResult.CONTINUE;
            }
        });
    }
}
