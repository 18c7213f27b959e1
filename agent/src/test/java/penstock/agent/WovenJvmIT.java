package penstock.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.commons.io.FileUtils;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import penstock.core.Role;

/**
 * The packed jar, which is compiled against one Hadoop, in a JVM with the classes of another: Maven runs this once for
 * each supported version.
 */
@Timeout(60)
class WovenJvmIT {
    private static final String VERSION = System.getProperty("penstock.hadoop.version");
    private static final String DN = "org.apache.hadoop.hdfs.server.datanode.";

    private Path directory;

    @BeforeEach
    void make() throws Exception {
        directory = Files.createTempDirectory("penstock");
    }

    @AfterEach
    void remove() throws Exception {
        FileUtils.deleteDirectory(directory.toFile());
    }

    private static Set<String> types() throws Exception {
        return Weaver.of(WovenJvmIT.class.getClassLoader(), Role.DATANODE).types();
    }

    /** Returns the output of a JVM with the given jar in front of Hadoop. The JVM must exit with 0. */
    private String probe(List<String> front, Set<String> types) throws Exception {
        List<String> classPath = new ArrayList<>(front);
        classPath.addAll(SmallHdfs.hadoop());
        // Only the probe is in this folder; the other classes of its package must come from the jar.
        Path own = Path.of(Probe.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        assertFalse(Files.exists(own.resolve("penstock/agent/Agent.class")), own.toString());
        classPath.add(own.toString());
        List<String> command = SmallHdfs.java(directory.resolve("s"), classPath);
        command.add(Probe.class.getName());
        command.addAll(types);
        Path log = directory.resolve("log");
        Process jvm = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log.toFile()).start();
        try {
            assertTrue(jvm.waitFor(50, TimeUnit.SECONDS), () -> "no end: " + text(log));
            assertEquals(0, jvm.exitValue(), () -> text(log));
        } finally {
            jvm.destroyForcibly().waitFor();
        }
        return text(log);
    }

    private static String text(Path file) {
        try {
            return Files.readString(file, StandardCharsets.UTF_8);
        } catch (java.io.IOException e) {
            return e.toString();
        }
    }

    @Test
    void everyClassIsWovenAndVerified() throws Exception {
        Set<String> types = types();
        String said = probe(List.of(), types);
        assertTrue(said.contains("penstock-agent: instrumented 17 methods"), said);
        assertTrue(said.contains("\nstate woven\nmethods 17\nmissing \nleft out \nsuppressed 0\n"), said);
        for (String type : types) {
            boolean stream = type.endsWith(".BlockSender") || type.endsWith(".BlockReceiver");
            String line = Pattern.quote(type) + (stream ? " woven " : " plain ")
                    + ".*/" + Pattern.quote(VERSION) + "/hadoop-hdfs.*";
            assertTrue(said.lines().anyMatch(l -> l.matches(line)), () -> "no " + line + ": " + said);
        }
    }

    /**
     * In a release in which a single method or field has another name, the agent leaves out the feature that needs it,
     * and logs an error. Everything else works as usual.
     */
    @ParameterizedTest
    @CsvSource({"BlockReceiver, receivePacket, BlockReceiver.receivePacket()I, writes, 12",
        "BlockSender, endOffset, BlockSender.endOffset, reads, 13"})
    void aDoctoredHadoopCostsOneFeature(String type, String member, String missing, String feature, int methods)
            throws Exception {
        String front = Doctored.jar(directory.resolve("front.jar"), DN + type, member);
        String said = probe(List.of(front), types());
        String left = feature + ": this Hadoop lacks " + DN + missing + "\n";
        assertTrue(said.contains("penstock-agent: instrumented " + methods + " methods;"), said);
        assertTrue(said.contains("penstock-agent: NOT GOVERNED: " + left), said);
        assertTrue(said.contains("\nstate woven\nmethods " + methods + "\nmissing " + DN + missing
                + "\nleft out " + left + "suppressed 0\n"), said);
        assertTrue(said.contains(DN + type + " plain " + front), said);
    }

    /** Without the method from which the agent learns the data directories, it does nothing, and all classes load. */
    @Test
    void aHadoopWithoutTheFirstFeatureIsLeftAlone() throws Exception {
        String front = Doctored.jar(directory.resolve("front.jar"), DN + "DataNode", "runDatanodeDaemon");
        String said = probe(List.of(front), types());
        String reason = "this Hadoop lacks 1 of the methods and fields that the agent needs";
        String symbol = DN + "DataNode.runDatanodeDaemon()V\n";
        assertTrue(said.contains("penstock-agent: not active, nothing is instrumented: " + reason + ": " + symbol), said);
        assertTrue(said.contains("\nstate out: " + reason + "\nmethods 0\nmissing " + symbol
                + "left out \nsuppressed 0\n"), said);
        assertEquals(types().size(), said.split(" plain /", -1).length - 1, said);
    }
}
