package penstock.sharedfs;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Paths;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.security.AccessControlException;

/** What the system reports, as the exceptions that Hadoop expects. */
final class Errors {
    private Errors() { }

    /** Returns Hadoop's exception for what the system reported about f. */
    static IOException translated(IOException e, Path f) {
        IOException said;
        if (e instanceof NoSuchFileException) {
            said = new FileNotFoundException("there is no " + f);
        } else if (e instanceof java.nio.file.FileAlreadyExistsException) {
            said = new FileAlreadyExistsException(f + " exists");
        } else if (e instanceof DirectoryNotEmptyException) {
            said = new PathIsNotEmptyDirectoryException(f.toString());
        } else if (e instanceof AccessDeniedException) {
            said = new AccessControlException("permission denied: " + f);
        } else if (isNotADirectory(e)) {
            said = new ParentNotDirectoryException("a parent of " + f + " is not a folder");
        } else {
            return e;
        }
        said.initCause(e);
        return said;
    }

    /** Returns the error about a name that Java cannot encode as a file name. */
    static IOException unwritable(String name, InvalidPathException e) {
        return new IOException("Java cannot encode the name " + name + " as a file name in "
            + System.getProperty("sun.jnu.encoding") + ". Set LC_ALL=C.UTF-8 in this process's environment"
            + " (for tasks: mapreduce.map.env, mapreduce.reduce.env, spark.executorEnv.LC_ALL)", e);
    }

    /** Reports whether the reason is that a parent is not a folder. The system's own text depends on the language. */
    static boolean isNotADirectory(IOException e) {
        if (e.getClass() != FileSystemException.class || ((FileSystemException) e).getFile() == null) {
            return false;
        }
        java.nio.file.Path parent = Paths.get(((FileSystemException) e).getFile()).getParent();
        while (parent != null && !Files.exists(parent)) {
            parent = parent.getParent();
        }
        return parent != null && !Files.isDirectory(parent);
    }
}
