package penstock.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.InputStream;
import java.lang.instrument.Instrumentation;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import penstock.core.Gates;
import penstock.core.Log;
import penstock.core.Role;
import penstock.core.Status;
import penstock.core.UnixSockets;

class AgentTest {
    private final List<Object> transformers = new ArrayList<>();
    private Class<?>[] loaded = {};

    /** A fake with the methods of Instrumentation that the agent calls. */
    private final Instrumentation instrumentation = (Instrumentation) Proxy.newProxyInstance(
            AgentTest.class.getClassLoader(), new Class<?>[] {Instrumentation.class}, (proxy, method, arguments) -> {
                switch (method.getName()) {
                    case "getAllLoadedClasses":
                        return loaded;
                    case "addTransformer":
                        transformers.add(arguments[0]);
                        return null;
                    default:
                        throw new UnsupportedOperationException(method.getName());
                }
            });

    @AfterEach
    void off() {
        Gates.install(null);
    }

    @Test
    void weaves() {
        Status status = Agent.start("socket=/run/penstock/agent.sock", instrumentation);
        assertEquals("woven", status.getState());
        assertEquals(17, status.getWovenMethods().size());
        assertEquals(List.of(), status.getMissing());
        assertEquals(1, transformers.size());
        assertFalse(status.isConnected());
        assertEquals("off", status.getMode());
    }

    @Test
    @Timeout(20)
    void aRepeatedOptionStartsOneAgent() throws Exception {
        for (int i = 0; i < 3; i++) {
            Agent.premain("socket=/run/penstock/agent.sock", instrumentation);
        }
        assertEquals(1, transformers.size());
        ManagementFactory.getPlatformMBeanServer().unregisterMBean(registered());
    }

    /** Waits until the MBean is registered, and returns its name. */
    private static ObjectName registered() throws Exception {
        ObjectName name = new ObjectName(Status.NAME);
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        while (!ManagementFactory.getPlatformMBeanServer().isRegistered(name)) {
            assertTrue(System.nanoTime() < end);
            Thread.onSpinWait();
        }
        return name;
    }

    @Test
    void logAndStatusNameWhatIsLeftOut() {
        String scanner = "org/apache/hadoop/hdfs/server/datanode/VolumeScanner.class";
        ClassLoader lacking = new ClassLoader(AgentTest.class.getClassLoader()) {
            @Override
            public InputStream getResourceAsStream(String name) {
                return name.equals(scanner) ? null : super.getResourceAsStream(name);
            }
        };
        List<String> said = new ArrayList<>();
        Log.to(said::add);
        try {
            Status status = Agent.start("socket=/s", instrumentation, lacking);
            String left = "names of scans: this Hadoop lacks org.apache.hadoop.hdfs.server.datanode.VolumeScanner";
            assertEquals("woven", status.getState());
            assertEquals(16, status.getWovenMethods().size());
            assertEquals(List.of(left), status.getLeftOut());
            assertEquals(List.of("org.apache.hadoop.hdfs.server.datanode.VolumeScanner"), status.getMissing());
            assertEquals(List.of("instrumented 16 methods; socket /s", "NOT GOVERNED: " + left), said);
        } finally {
            Log.to(message -> System.err.println("penstock-agent: " + message));
        }
    }

    @Test
    void staysOutWithoutASocket() {
        for (String arguments : new String[] {null, "", "socket=", "socket=relative", "sockt=/x", "role=datanode",
            "socket=/x,socket=/y", "socket=/x,role=datanode,mode=off,role=x"}) {
            Status status = Agent.start(arguments, instrumentation);
            assertTrue(status.getState().startsWith("out: give the agent socket=/absolute/path"), status.getState());
        }
        assertEquals(0, transformers.size());
    }

    @Test
    void argumentsComeInAnyOrder() {
        assertEquals(Map.of("socket", "/a,b=c", "role", "executor"), Agent.options("socket=/a,b=c,role=executor"));
        assertEquals(Map.of("socket", "/x", "role", "datanode"), Agent.options("role=datanode,socket=/x"));
        assertEquals(Map.of("socket", "/x"), Agent.options("socket=/x"));
        assertEquals(Map.of("socket", "/x", "transport", "loopback"), Agent.options("transport=loopback,socket=/x"));
        assertEquals(Role.NODEMANAGER, Role.named("nodemanager"));
        assertThrows(IllegalArgumentException.class, () -> Role.named("task"));
        Status status = Agent.start("role=namenode,socket=/x", instrumentation);
        assertTrue(status.getState().startsWith("out: give the agent role=datanode, nodemanager, executor or worker"),
                status.getState());
    }

    @Test
    void theTransportMayBeChosen() {
        assertEquals("woven", Agent.start("socket=/x,transport=loopback", instrumentation).getState());
        assertEquals("out: transport tcp: use unix or loopback",
                Agent.start("socket=/x,transport=tcp", instrumentation).getState());
    }

    @Test
    void staysOutIfAClassIsLoadedAlready() {
        loaded = new Class<?>[] {String.class, DataNode.class};
        Status status = Agent.start("socket=/s", instrumentation);
        assertTrue(status.getState().contains("DataNode is loaded already"), status.getState());
        assertEquals(List.of(), status.getWovenMethods());
        assertEquals(0, transformers.size());
    }

    @Test
    void anOldJvmIsTold() {
        UnsupportedOperationException e = assertThrows(UnsupportedOperationException.class,
                () -> UnixSockets.find("java.net.NoSuchAddress"));
        assertTrue(e.getMessage().contains("has no Unix sockets: use Java 16 or later"), e.getMessage());
    }

    @Test
    @Timeout(20)
    void theMBeanShowsTheState() throws Exception {
        Status status = new Status();
        status.out("this Hadoop lacks something", List.of("a.B.c()V"));
        status.register();
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        ObjectName name = registered();
        try {
            assertEquals("out: this Hadoop lacks something", server.getAttribute(name, "State"));
            assertEquals("a.B.c()V", ((String[]) server.getAttribute(name, "Missing"))[0]);
            for (String attribute : new String[] {"WovenMethods", "LeftOut", "Connected", "Mode", "StreamsOpen", "GateWaits",
                "GateWaitNanos", "GateBackstops", "OrphanedWaits", "OrphanedWaitNanosLongest",
                "OrphanedWaitNanosLatest", "FailedOpen", "OverBound", "Reconnects", "FramesDropped", "Suppressed"}) {
                server.getAttribute(name, attribute);
            }
        } finally {
            server.unregisterMBean(name);
        }
    }
}
