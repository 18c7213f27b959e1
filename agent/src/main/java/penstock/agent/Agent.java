package penstock.agent;

import java.lang.instrument.Instrumentation;
import java.util.Collections;

/**
 * The agent's entry: {@code -javaagent:penstock-agent.jar=socket=/path/to/agent.sock}
 * in {@code HDFS_DATANODE_OPTS}. It does as little as possible: it checks that
 * this JVM and this Hadoop have all that it needs, weaves, and leaves the rest to
 * the first DataNode that starts. If anything is not as expected it weaves
 * nothing, says so on standard error (the DataNode's .out file) and in the MBean,
 * and the DataNode runs as without it.
 */
public final class Agent {
    private Agent() { }

    /** Called by the JVM before the DataNode's main. Never throws. */
    public static void premain(String arguments, Instrumentation instrumentation) {
        try {
            start(arguments, instrumentation).register();
        } catch (Throwable t) {
            log("stays out: " + t);
        }
    }

    static Status start(String arguments, Instrumentation instrumentation) {
        Status status = new Status();
        try {
            String socket = socket(arguments);
            UnixSockets sockets = UnixSockets.find();
            Weaver weaver = Weaver.of(ClassLoader.getSystemClassLoader());
            String early = loaded(instrumentation, weaver);
            if (early != null) {
                throw new UnsupportedOperationException(early + " is loaded already: put this agent before others");
            }
            Client client = new Client(sockets, socket, "penstock-agent " + version(), Client.BACKSTOP_NANOS);
            Gates.install(client);
            instrumentation.addTransformer(weaver);
            status.woven(weaver.methods(), client);
            log("woven into " + weaver.methods().size() + " methods; socket " + socket);
        } catch (Weaver.Missing e) {
            status.out(e.getMessage(), e.symbols);
            log("stays out, nothing is woven: " + e.getMessage() + ": " + String.join(", ", e.symbols));
        } catch (Throwable t) {
            String reason = t.getMessage() == null ? t.toString() : t.getMessage();
            status.out(reason, Collections.<String>emptyList());
            log("stays out, nothing is woven: " + reason);
        }
        return status;
    }

    /** The agent's arguments: socket=PATH. */
    static String socket(String arguments) {
        String key = "socket=";
        if (arguments == null || !arguments.startsWith(key + "/")) {
            throw new IllegalArgumentException("give the agent socket=/absolute/path, not \"" + arguments + "\"");
        }
        return arguments.substring(key.length());
    }

    private static String loaded(Instrumentation instrumentation, Weaver weaver) {
        for (Class<?> c : instrumentation.getAllLoadedClasses()) {
            if (weaver.types().contains(c.getName())) {
                return c.getName();
            }
        }
        return null;
    }

    private static String version() {
        String version = Agent.class.getPackage().getImplementationVersion();
        return version == null ? "dev" : version;
    }

    /** One line in the DataNode's .out file; its logging is not configured yet when the agent starts. */
    static void log(String message) {
        System.err.println("penstock-agent: " + message);
    }
}
