package penstock.agent;

import java.lang.instrument.Instrumentation;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import penstock.core.Client;
import penstock.core.Gates;
import penstock.core.Log;
import penstock.core.Names;
import penstock.core.Patience;
import penstock.core.Role;
import penstock.core.Status;
import penstock.core.Transport;

/**
 * The agent's entry: {@code -javaagent:penstock-agent.jar=socket=/path/to/agent.sock} in {@code HDFS_DATANODE_OPTS}.
 * Other processes have {@code role=nodemanager,}, {@code role=executor,} or {@code role=worker,} before the socket. The
 * entry does as little as possible: it checks that this JVM and this Hadoop have everything that it needs, and
 * instruments the classes. The connection to the daemon starts when the first DataNode starts. What cannot be governed,
 * because this Hadoop lacks a method for it, is reported on standard error (the DataNode's .out file) and in the MBean.
 * If anything else is not as expected, the agent instruments nothing and reports this, and its host runs as without the
 * agent.
 */
public final class Agent {
    private Agent() { }

    private static final AtomicBoolean STARTED = new AtomicBoolean();

    /**
     * Called by the JVM before the DataNode's main. Never throws. Only the first call of a JVM starts the agent: a
     * standalone Spark 3.5 gives its executors each default option, and so the agent, three times.
     */
    public static void premain(String arguments, Instrumentation instrumentation) {
        if (!STARTED.compareAndSet(false, true)) {
            return;
        }
        try {
            start(arguments, instrumentation).register();
        } catch (Throwable t) {
            Log.say("not active: " + t);
        }
    }

    static Status start(String arguments, Instrumentation instrumentation) {
        return start(arguments, instrumentation, ClassLoader.getSystemClassLoader());
    }

    static Status start(String arguments, Instrumentation instrumentation, ClassLoader loader) {
        Status status = new Status();
        try {
            Map<String, String> options = options(arguments);
            String socket = options.get("socket");
            Role role = Role.named(options.getOrDefault("role", "datanode"));
            String flow = role == Role.EXECUTOR ? executorsFlow() : "";
            Transport transport = Transport.named(options.get("transport"));
            Weaver weaver = Weaver.of(loader, role);
            String early = loaded(instrumentation, weaver);
            if (early != null) {
                throw new UnsupportedOperationException(early + " is loaded already: put this agent before others");
            }
            Client client = new Client(transport, socket, Client.agent(), role, flow, Patience.USUAL);
            Gates.install(client);
            if (role == Role.NODEMANAGER) {
                weaver.instrumentServices(instrumentation);
            }
            instrumentation.addTransformer(weaver);
            status.woven(weaver::methods, weaver::leftOut, new ArrayList<>(weaver.missing()), client);
            Log.say("instrumented " + weaver.methods().size() + " methods; socket " + socket + transport.way());
            for (String feature : weaver.leftOut()) {
                Log.say("NOT GOVERNED: " + feature);
            }
        } catch (Weaver.Missing e) {
            status.out(e.getMessage(), e.symbols);
            Log.say("not active, nothing is instrumented: " + e.getMessage() + ": " + String.join(", ", e.symbols));
        } catch (Throwable t) {
            String reason = t.getMessage() == null ? t.toString() : t.getMessage();
            status.out(reason, Collections.<String>emptyList());
            Log.say("not active, nothing is instrumented: " + reason);
        }
        return status;
    }

    /**
     * Returns the application of an executor, to which all its I/O belongs. Without an application the I/O could not be
     * attributed.
     */
    private static String executorsFlow() {
        String flow = Names.ofProcess(System.getenv("CONTAINER_ID"), System.getProperty(Names.APPLICATION_PROPERTY));
        if (flow == null) {
            throw new IllegalArgumentException("this executor has no application: neither CONTAINER_ID in the"
                    + " environment nor -D" + Names.APPLICATION_PROPERTY + "={{APP_ID}} in its Java options");
        }
        return flow;
    }

    /**
     * Parses the agent's arguments: socket=PATH, role=ROLE and transport=TRANSPORT, in any order, separated by commas.
     *
     * @throws IllegalArgumentException if there is no absolute path of a socket, or if there is an unknown argument
     */
    static Map<String, String> options(String arguments) {
        Map<String, String> options = new HashMap<>();
        for (String option : (arguments == null ? "" : arguments).split(",(?=(?:socket|role|transport)=)")) {
            int equals = option.indexOf('=');
            String key = equals < 0 ? option : option.substring(0, equals);
            if (!key.equals("socket") && !key.equals("role") && !key.equals("transport")
                    || options.put(key, option.substring(equals + 1)) != null) {
                options.clear();
                break;
            }
        }
        if (!options.getOrDefault("socket", "").startsWith("/")) {
            throw new IllegalArgumentException("give the agent socket=/absolute/path, and role=ROLE unless it is a "
                    + "DataNode's, not \"" + arguments + "\"");
        }
        return options;
    }

    private static String loaded(Instrumentation instrumentation, Weaver weaver) {
        for (Class<?> c : instrumentation.getAllLoadedClasses()) {
            if (weaver.types().contains(c.getName())) {
                return c.getName();
            }
        }
        return null;
    }
}
