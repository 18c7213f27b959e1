package penstock.task;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.commons.io.FileUtils;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import penstock.core.TestDaemon;
import penstock.core.TestDaemon.Heard;

/** A JVM with a container's environment, and the packed jar on its class path. */
public abstract class ContainerJvm {
    private static final String JAR = System.getProperty("penstock.agent.jar");
    private static final String APPLICATION = "application_1700000000000_0042";

    protected Path directory;
    protected Path local;
    protected TestDaemon daemon;
    protected Process jvm;

    @BeforeEach
    protected void prepare() throws Exception {
        directory = Files.createTempDirectory("penstock").toRealPath();
        local = Files.createDirectories(directory.resolve("local/usercache/u/appcache/" + APPLICATION));
        daemon = new TestDaemon(directory.resolve("s"), TestDaemon.ENFORCE);
    }

    @AfterEach
    protected void end() throws Exception {
        if (jvm != null) {
            jvm.destroyForcibly().waitFor();
        }
        if (daemon != null) { // else prepare has failed
            daemon.close();
        }
        if (directory != null) {
            FileUtils.deleteDirectory(directory.toFile());
        }
    }

    protected void start(boolean inContainer, Class<?> main, String... arguments) throws Exception {
        List<String> classPath = new ArrayList<>(List.of(JAR));
        for (String entry : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (entry.endsWith(".jar") && !entry.contains("junit") && !entry.contains("byte-buddy")) {
                classPath.add(entry);
            }
        }
        Path own = Path.of(main.getProtectionDomain().getCodeSource().getLocation().toURI());
        assertFalse(Files.exists(own.resolve("penstock/task/GovernedLocalFileSystem.class")), own.toString());
        classPath.add(own.toString());
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                "--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED",
                "-cp", String.join(File.pathSeparator, classPath), main.getName()));
        command.addAll(List.of(arguments));
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.environment().keySet().removeIf(k -> k.equals("CONTAINER_ID") || k.equals("LOCAL_DIRS"));
        if (inContainer) {
            builder.environment().put("CONTAINER_ID", "container_1700000000000_0042_01_000002");
            builder.environment().put("LOCAL_DIRS", local.toString());
        }
        jvm = builder.redirectErrorStream(true).redirectOutput(directory.resolve("log").toFile()).start();
    }

    protected String log() throws Exception {
        return Files.readString(directory.resolve("log"), StandardCharsets.UTF_8);
    }

    protected String ended() throws Exception {
        assertTrue(jvm.waitFor(120, TimeUnit.SECONDS), "no end");
        assertEquals(0, jvm.exitValue(), log());
        assertFalse(log().contains("suppressed"), log());
        return log();
    }

    protected static long figure(String log, String name) {
        return log.lines().filter(l -> l.startsWith(name + " ")).mapToLong(l -> Long.parseLong(l.split(" ")[1])).sum();
    }

    /** The files that the daemon has heard of, by name, and the bytes of their streams. */
    protected record Moved(Set<String> written, Set<String> read, long bytesWritten, long bytesRead) { }

    protected Moved moved() throws Exception {
        Heard hello = daemon.next(TestDaemon.HELLO);
        assertEquals(APPLICATION, hello.flow());
        Map<Integer, Heard> open = new HashMap<>();
        Set<String> written = new HashSet<>();
        Set<String> read = new HashSet<>();
        long bytesWritten = 0;
        long bytesRead = 0;
        for (Heard h : daemon.heard()) {
            if (h.type() == TestDaemon.OPEN) {
                assertEquals(APPLICATION, h.flow());
                assertTrue(h.block().startsWith(local + "/"), h.block());
                (h.write() ? written : read).add(new File(h.block()).getName());
                open.put(h.stream(), h);
            } else if (h.type() == TestDaemon.CLOSE) {
                Heard began = open.remove(h.stream());
                assertFalse(h.failed(), () -> "failed: " + began);
                if (began.write()) {
                    bytesWritten += h.position() - began.from();
                } else {
                    bytesRead += h.position() - began.from();
                }
            }
        }
        return new Moved(written, read, bytesWritten, bytesRead);
    }
}
