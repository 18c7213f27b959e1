package penstock.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.commons.io.FileUtils;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import penstock.core.TestDaemon.Heard;
import penstock.core.TestDaemon;

/** Tests shuffles, spills and cached blocks of the real Spark, with the packed jar as agent and plug-in. */
@Timeout(240)
class SparkIT {
    private static final Path JAR = Path.of(System.getProperty("penstock.agent.jar", "/"));
    private static final Path HOME = Path.of(System.getProperty("penstock.spark.home", "/"));
    private static final String APPLICATION = "application_1700000000000_0042";
    private static final int EXECUTOR = 4;
    private static final int WORKER = 5;
    private static final int INTERMEDIATE = 1;
    /** The output of {@link SmallSpark} without an agent. Its data is random, and the same each time. */
    private static final List<String> RESULTS = List.of("sorted 60000 883369307", "spread 60000 -371272230",
            "grouped 9973 1215398538", "kept 60000 216171552");
    private static final String[] OPEN = {"java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net",
        "java.nio", "java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref",
        "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"};

    private Path directory;
    private Path local;
    private Path classes;
    private TestDaemon daemon;
    private Process jvm;
    private Process service;

    @BeforeEach
    void begin() throws Exception {
        directory = Files.createTempDirectory("penstock").toRealPath();
        local = Files.createDirectories(directory.resolve("local/usercache/u/appcache/" + APPLICATION));
        daemon = new TestDaemon(directory.resolve("s"), TestDaemon.ENFORCE);
        // Only the job is in this folder; all classes of Penstock must come from the jar.
        classes = Files.createDirectories(directory.resolve("classes/penstock/spark"));
        Path built = Path.of(SmallSpark.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        Files.copy(built.resolve("penstock/spark/SmallSpark.class"), classes.resolve("SmallSpark.class"));
        classes = directory.resolve("classes");
    }

    @AfterEach
    void end() throws Exception {
        if (jvm != null) {
            jvm.descendants().forEach(ProcessHandle::destroyForcibly);
            jvm.destroyForcibly().waitFor();
        }
        if (service != null) {
            service.destroyForcibly().waitFor();
        }
        daemon.close();
        FileUtils.deleteDirectory(directory.toFile());
    }

    private String agent() {
        return agent("executor");
    }

    private String agent(String role) {
        return "-javaagent:" + JAR + "=socket=" + daemon.socket + ",role=" + role;
    }

    private void start(String master, List<String> options, List<String> settings, boolean inContainer)
            throws IOException {
        List<String> command = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin/java").toString(),
                "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
        for (String name : OPEN) {
            command.add("--add-opens=java.base/" + name + "=ALL-UNNAMED");
        }
        command.addAll(options);
        command.addAll(List.of("-cp", JAR + ":" + classes + ":" + HOME.resolve("jars") + "/*",
                SmallSpark.class.getName(), master, local.toString(),
                "spark.shuffle.sort.io.plugin.class=penstock.spark.GovernedShuffleDataIO",
                "spark.hadoop.penstock.socket=" + daemon.socket));
        command.addAll(settings);
        ProcessBuilder builder = new ProcessBuilder(command).directory(directory.toFile());
        builder.environment().keySet().removeIf(k -> k.equals("CONTAINER_ID") || k.startsWith("LOCAL_DIRS")
                || k.startsWith("SPARK_"));
        builder.environment().put("SPARK_LOCAL_IP", "127.0.0.1");
        if (inContainer) {
            builder.environment().put("CONTAINER_ID", "container_1700000000000_0042_01_000002");
            builder.environment().put("LOCAL_DIRS", local.toString());
        } else {
            Path home = Files.createDirectories(directory.resolve("home"));
            Files.createSymbolicLink(home.resolve("jars"), HOME.resolve("jars"));
            builder.environment().put("SPARK_HOME", home.toString());
            builder.environment().put("SPARK_SCALA_VERSION", "2.13");
        }
        jvm = builder.redirectErrorStream(true).redirectOutput(directory.resolve("log").toFile()).start();
    }

    private String log() throws IOException {
        return Files.readString(directory.resolve("log"), StandardCharsets.UTF_8);
    }

    /** Returns the logs, including those of Spark's executors. */
    private String logs() throws IOException {
        StringBuilder all = new StringBuilder(log());
        Path work = directory.resolve("home/work");
        if (Files.exists(work)) {
            try (Stream<Path> files = Files.walk(work)) {
                for (Path f : files.filter(f -> f.endsWith("stderr")).collect(Collectors.toList())) {
                    all.append(Files.readString(f, StandardCharsets.UTF_8));
                }
            }
        }
        return all.toString();
    }

    private void ended() throws Exception {
        assertTrue(jvm.waitFor(200, TimeUnit.SECONDS), "no end");
        assertEquals(0, jvm.exitValue(), log());
        String said = logs();
        assertTrue(said.lines().collect(Collectors.toList()).containsAll(RESULTS), said);
        assertFalse(said.contains("suppressed"), said);
    }

    /** Returns the part of a block's name before its numbers. */
    private static String sort(Heard open) {
        return new File(open.block()).getName().replaceAll("_[-0-9a-f].*", "");
    }

    private void governed(Set<String> written, Set<String> read, String flow, String below) {
        governed(daemon.heard(), written, read, flow, below);
    }

    private static void governed(List<Heard> heard, Set<String> written, Set<String> read, String flow, String below) {
        for (Heard h : heard) {
            if (h.type() == TestDaemon.OPEN) {
                assertEquals(flow, h.flow());
                assertEquals(INTERMEDIATE, h.kind());
                assertTrue(h.block().startsWith(below), h.block());
                (h.write() ? written : read).add(sort(h));
            } else {
                assertFalse(h.failed());
            }
        }
    }

    @Test
    void everyLocalFileIsGoverned() throws Exception {
        daemon.generous = true;
        start("local[2]", List.of(agent()), List.of(), true);
        Heard hello = daemon.next(TestDaemon.HELLO);
        assertEquals(APPLICATION, hello.flow());
        assertEquals(EXECUTOR, hello.role());
        assertEquals(List.of(local + "/"), hello.directories());
        ended();
        Set<String> written = new TreeSet<>();
        Set<String> read = new TreeSet<>();
        governed(written, read, APPLICATION, local + "/");
        Set<String> all = Set.of("temp_shuffle", "temp_local", "shuffle", "rdd");
        assertEquals(all, written);
        assertEquals(all, read);
    }

    /** The plug-in alone, without an active agent: it governs shuffle outputs, and no reads. */
    @Test
    void withoutTheAgentShuffleOutputsAreGoverned() throws Exception {
        daemon.generous = true;
        start("local[2]", List.of(), List.of(), true);
        assertEquals(APPLICATION, daemon.next(TestDaemon.HELLO).flow());
        ended();
        Set<String> written = new HashSet<>();
        Set<String> read = new HashSet<>();
        governed(written, read, APPLICATION, local + "/");
        assertEquals(Set.of("shuffle"), written);
        assertEquals(Set.of(), read);
    }

    @Test
    void aDaemonThatDiesHoldsNothingUp() throws Exception {
        start("local[2]", List.of(agent()), List.of(), true);
        Heard open = daemon.next(TestDaemon.OPEN);
        assertTrue(open.write());
        while (!threads().contains("penstock.core.Gates.await")) {
            assertTrue(jvm.isAlive(), log());
        }
        assertFalse(log().contains("sorted "));
        daemon.close();
        ended();
    }

    private String threads() throws Exception {
        Process dump = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "jcmd").toString(),
                Long.toString(jvm.pid()), "Thread.print").redirectErrorStream(true).start();
        return new String(dump.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    }

    /** Two executors that fetch from each other, and get their application from Spark's own placeholder. */
    @Test
    void aStandaloneApplicationsExecutorsAreOneFlow() throws Exception {
        daemon.generous = true;
        start("local-cluster[2,1,512]", List.of(), List.of("spark.executor.memory=512m",
                "spark.executor.extraClassPath=" + JAR + ":" + classes,
                "spark.executor.defaultJavaOptions=" + agent()
                        + " -Dpenstock.application={{APP_ID}} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"), false);
        ended();
        String application = log().lines().filter(l -> l.startsWith("application ")).findFirst().get().substring(12);
        assertTrue(application.matches("app-[0-9]{14}-0000"), application);
        for (int executor = 0; executor < 2; executor++) {
            Heard hello = daemon.next(TestDaemon.HELLO);
            assertEquals(application, hello.flow());
            assertEquals(1, hello.directories().size(), hello.toString());
        }
        Set<String> written = new TreeSet<>();
        Set<String> read = new TreeSet<>();
        governed(written, read, application, directory + "/");
        assertTrue(written.contains("shuffle") && read.contains("shuffle"), written + " " + read);
    }

    /** Spark's external shuffle service by itself, as in a standalone Worker: what it sends is governed. */
    @Test
    void whatTheShuffleServiceSendsBelongsToTheApplication() throws Exception {
        int port;
        try (java.net.ServerSocket free = new java.net.ServerSocket(0)) {
            port = free.getLocalPort();
        }
        ProcessBuilder builder = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin/java").toString(),
                "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dspark.shuffle.service.enabled=true",
                "-Dspark.shuffle.service.port=" + port, "-Dspark.shuffle.service.db.enabled=false",
                "-Dspark.local.dir=" + local, agent("worker"),
                "-cp", HOME.resolve("jars") + "/*", "org.apache.spark.deploy.ExternalShuffleService");
        for (String name : OPEN) {
            builder.command().add(1, "--add-opens=java.base/" + name + "=ALL-UNNAMED");
        }
        Path said = directory.resolve("service.log");
        service = builder.redirectErrorStream(true).redirectOutput(said.toFile()).start();
        while (!Files.readString(said).contains("Starting shuffle service on port " + port)) {
            assertTrue(service.isAlive(), Files.readString(said));
        }
        Heard worker = daemon.next(TestDaemon.HELLO);
        assertEquals(WORKER, worker.role());
        assertEquals(List.of(local + "/"), worker.directories());
        daemon.generous = true;
        start("local-cluster[2,1,512]", List.of(), List.of("spark.executor.memory=512m",
                "spark.shuffle.service.enabled=true", "spark.shuffle.service.port=" + port,
                "spark.shuffle.readHostLocalDisk=false",
                "spark.cores.max=2", "spark.scheduler.minRegisteredResourcesRatio=1", // both executors work
                "spark.executor.extraClassPath=" + JAR + ":" + classes,
                "spark.executor.defaultJavaOptions=" + agent()
                        + " -Dpenstock.application={{APP_ID}} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"), false);
        ended();
        Heard hello = daemon.next(TestDaemon.HELLO);
        Set<String> written = new TreeSet<>();
        Set<String> read = new TreeSet<>();
        List<Heard> heard = daemon.heard();
        governed(heard, written, read, hello.flow(), directory + "/");
        assertTrue(written.contains("shuffle"), written.toString());
        List<Heard> sent = heard.stream().filter(h -> h.peer().server.endsWith(":" + port)).toList();
        assertTrue(sent.stream().anyMatch(h -> sort(h).equals("shuffle")), sent.toString());
        assertTrue(sent.stream().noneMatch(h -> h.write() || h.peer().client.isEmpty()), sent.toString());
        String service = Files.readString(said);
        assertTrue(service.contains("[appId=" + hello.flow() + ",execId=1]"), service);
        assertTrue(service.contains("penstock-agent: instrumented 4 methods"), service);
        assertFalse(service.contains("suppressed"), service);
    }

    /** Without a container and an application nothing is governed, with any settings. */
    @Test
    void outsideOfAnApplicationNothingIsGoverned() throws Exception {
        start("local[2]", List.of(agent()), List.of(), false);
        ended();
        assertTrue(log().contains("penstock-agent: not active, nothing is instrumented: this executor has no application"),
                log());
        assertTrue(daemon.heard().isEmpty());
    }
}
