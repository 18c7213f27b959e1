package penstock.task;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import penstock.core.Canonical;
import penstock.core.Gates;
import penstock.core.Names;
import penstock.core.Opener;
import penstock.core.Peer;
import penstock.core.Role;
import penstock.core.Stream;
import penstock.core.Window;

/**
 * The YARN container of this process. Its application is the flow, and files in its YARN directories are governed. The
 * application and the directories come from the environment that YARN sets. A process outside of containers, such as a
 * shell, a client, a daemon or a LocalJobRunner, lacks them, and is not governed.
 *
 * <p>The connection is started when the file system is initialised, well before the first file is opened. Nothing waits
 * for the connection.
 */
final class Container implements Opener {
    static final String SOCKET = "penstock.socket";
    static final String DEFAULT_SOCKET = "/run/penstock/agent.sock";
    private static final Logger LOG = LoggerFactory.getLogger(GovernedLocalFileSystem.class);
    private static final String[] LOCAL_DIRS = {"mapreduce.cluster.local.dir", "yarn.nodemanager.local-dirs"};
    /** Whether this Hadoop has statistics of streams. */
    private static final boolean STATISTICS = exists(WithStatistics.NEEDED);
    private static volatile boolean logged;

    private final String flow;
    private final String socket;
    /** Canonical paths, with a slash at the end. */
    private final List<String> directories;
    private volatile boolean connected;
    private volatile boolean out;

    private Container(String flow, String socket, List<String> directories) {
        this.flow = flow;
        this.socket = socket;
        this.directories = directories;
    }

    /** Returns null if nothing is to be governed here. Never throws. */
    static Container find(Map<String, String> environment, Configuration conf) {
        try {
            String flow = Names.ofContainer(environment.get("CONTAINER_ID"));
            if (flow == null) {
                return null;
            }
            // If this Hadoop lacks anything that these classes need, the error occurs here, before the first file.
            for (Class<?> needed : Arrays.asList(GovernedInput.class, GovernedOutput.class, Window.class)) {
                Class.forName(needed.getName(), true, Container.class.getClassLoader());
            }
            if (STATISTICS) {
                Class.forName(WithStatistics.class.getName(), true, Container.class.getClassLoader());
            }
            List<String> directories = directories(environment, conf);
            if (directories.isEmpty()) {
                return null;
            }
            Container container = new Container(flow, conf.getTrimmed(SOCKET, DEFAULT_SOCKET), directories);
            return container.connect() ? container : null;
        } catch (Throwable t) {
            say("local files go ungoverned: " + t);
            return null;
        }
    }

    private static boolean exists(String type) {
        try {
            Class.forName(type, false, Container.class.getClassLoader());
            return true;
        } catch (ClassNotFoundException | LinkageError e) {
            return false;
        }
    }

    /** Returns the reader's side of a governed file. */
    FSInputStream input(FSDataInputStream in, File file) {
        return STATISTICS ? WithStatistics.input(in, this, file) : new GovernedInput(in, this, file);
    }

    /** Returns the writer's side of a governed file, from that position on. */
    OutputStream output(OutputStream out, Stream stream, long from) {
        return STATISTICS ? WithStatistics.output(out, stream, from) : new GovernedOutput(out, stream, from);
    }

    private static List<String> directories(Map<String, String> environment, Configuration conf) throws IOException {
        String[] names = environment.getOrDefault("LOCAL_DIRS", "").split(",");
        for (int i = 0; i < LOCAL_DIRS.length && names[0].isEmpty(); i++) {
            names = conf.getTrimmed(LOCAL_DIRS[i], "").split(",");
        }
        List<String> directories = new ArrayList<>();
        for (String name : names) {
            String path = name.trim();
            if (path.startsWith("file:")) {
                path = URI.create(path).getPath();
            }
            if (path.startsWith("/")) {
                Canonical.add(directories, new File(path));
            }
        }
        return Collections.unmodifiableList(directories);
    }

    /** Returns the file's canonical path, without links, if it is below one of the directories; else null. */
    File governs(File file) throws IOException {
        return out ? null : Canonical.below(directories, file);
    }

    @Override
    public Stream open(boolean write, File file, long from, long to) {
        try {
            return connect() ? Gates.open(write, Gates.INTERMEDIATE, flow, file, Peer.UNKNOWN, from, to, null) : null;
        } catch (Throwable t) {
            out = true;
            say("local files go ungoverned: " + t);
            return null;
        }
    }

    private boolean connect() {
        if (!connected && !out) {
            String reason = Gates.connect(socket, Role.TASK, flow, directories, new ToLog());
            if (reason != null) {
                out = true;
                say("local files go ungoverned: " + reason);
            }
            connected = true;
        }
        return !out;
    }

    /** Logs the connection's messages. A lambda would cost each task a millisecond or two. */
    private static final class ToLog implements Consumer<String> {
        @Override
        public void accept(String message) {
            LOG.info(message);
        }
    }

    private static synchronized void say(String message) {
        if (!logged) {
            logged = true;
            LOG.info(message);
        }
    }
}
