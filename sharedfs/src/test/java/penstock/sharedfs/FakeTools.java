package penstock.sharedfs;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import org.apache.hadoop.conf.Configuration;

/** A folder of small scripts in the place of a file system's tools. Each call is a line of the file "calls". */
public final class FakeTools {
    private final Path folder;

    public FakeTools() {
        folder = TestMount.create();
    }

    /** Writes the tool: a script that receives the tool's own arguments. */
    public FakeTools tool(String name, String script) {
        try {
            Path file = folder.resolve(name);
            Files.writeString(file, "#!/bin/sh\necho " + name + " \"$@\" >> " + calls() + "\n" + script + "\n");
            Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rwxr-xr-x"));
            return this;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private Path calls() {
        return folder.resolve("calls");
    }

    /** Returns the calls so far, each with its arguments. */
    public List<String> called() {
        try {
            return Files.exists(calls()) ? Files.readAllLines(calls()) : List.of();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    public String folder() {
        return folder.toString();
    }

    public void configure(Configuration conf, String layout) {
        conf.set("penstock.sharedfs.layout", layout);
        conf.set("penstock.sharedfs.tools", folder());
        conf.set("penstock.sharedfs.tool.time", "30s"); // the machine may be slow
    }
}
