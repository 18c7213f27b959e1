package penstock.agent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.jar.asm.ClassReader;
import net.bytebuddy.jar.asm.ClassVisitor;
import net.bytebuddy.jar.asm.ClassWriter;
import net.bytebuddy.jar.asm.FieldVisitor;
import net.bytebuddy.jar.asm.MethodVisitor;
import net.bytebuddy.jar.asm.Opcodes;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import penstock.core.Client;
import penstock.core.Feature;
import penstock.core.Gates;
import penstock.core.Log;
import penstock.core.Patience;
import penstock.core.Point;
import penstock.core.Role;
import penstock.core.Stream;
import penstock.core.UnixSockets;

/** Instruments the classes of the real hadoop-hdfs. */
class WeaverTest {
    private static final String DN = "org.apache.hadoop.hdfs.server.datanode.";
    private static final ClassLoader LOADER = WeaverTest.class.getClassLoader();
    private static final ClassFileLocator REAL = ClassFileLocator.ForClassLoader.of(LOADER);

    @AfterEach
    void off() {
        Gates.install(null);
    }

    private static byte[] real(String type) throws IOException {
        return REAL.locate(type).resolve();
    }

    private static byte[] woven(Weaver weaver, String type) throws IOException {
        return weaver.transform(LOADER, type.replace('.', '/'), null, null, real(type));
    }

    @Test
    void everyMethodOfTheListCallsItsGate() throws Exception {
        Weaver weaver = Weaver.of(LOADER, Role.DATANODE);
        Set<String> calling = new HashSet<>();
        for (String type : weaver.types()) {
            calling.addAll(callers(type, woven(weaver, type)));
        }
        assertEquals(new HashSet<>(weaver.methods()), calling);
        assertEquals(17, calling.size());
    }

    /** Returns the methods that call Gates for another purpose than to report an exception. */
    private static Set<String> callers(String type, byte[] code) {
        Set<String> callers = new HashSet<>();
        new ClassReader(code).accept(new ClassVisitor(Opcodes.ASM9) {
            @Override
            public MethodVisitor visitMethod(int access, String name, String descriptor, String signature,
                    String[] exceptions) {
                return new MethodVisitor(Opcodes.ASM9) {
                    @Override
                    public void visitMethodInsn(int opcode, String owner, String called, String calledDescriptor,
                            boolean isInterface) {
                        if (owner.equals("penstock/core/Gates") && !called.equals("failed")) {
                            callers.add(type + "." + name + descriptor);
                        }
                    }
                };
            }
        }, 0);
        return callers;
    }

    /** The JVM verifies every woven class, in a loader that prefers the woven classes to its parent's classes. */
    @Test
    void theJvmAcceptsTheWovenClasses() throws Exception {
        Weaver weaver = Weaver.of(LOADER, Role.DATANODE);
        Map<String, byte[]> code = new HashMap<>();
        for (String type : weaver.types()) {
            code.put(type, woven(weaver, type));
        }
        ClassLoader own = new ClassLoader(LOADER) {
            @Override
            protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
                synchronized (getClassLoadingLock(name)) {
                    Class<?> c = findLoadedClass(name);
                    if (c == null && name.startsWith("org.apache.hadoop.hdfs.")) {
                        byte[] bytes = code.get(name);
                        try {
                            bytes = bytes == null ? real(name) : bytes;
                        } catch (IOException e) {
                            throw new ClassNotFoundException(name, e);
                        }
                        c = defineClass(name, bytes, 0, bytes.length);
                    }
                    return c == null ? super.loadClass(name, resolve) : c;
                }
            }
        };
        for (String type : weaver.types()) {
            Class<?> c = Class.forName(type, true, own); // initialising verifies
            assertSame(own, c.getClassLoader());
        }
        assertSame(Stream.class, Class.forName(DN + "BlockSender", false, own)
                .getDeclaredField(Stream.FIELD).getType());
    }

    @ParameterizedTest
    @CsvSource({
        "BlockSender, sendPacket, BlockSender.sendPacket(, reads",
        "BlockReceiver, receivePacket, BlockReceiver.receivePacket(, writes",
        "BlockSender, endOffset, BlockSender.endOffset, reads",
        "BlockReceiver, replicaInfo, BlockReceiver.replicaInfo, writes",
        "DataNode$DataTransfer, clientname, DataNode$DataTransfer.clientname, names of copies between DataNodes",
        "DataNode$DataTransfer, stage, DataNode$DataTransfer.stage, names of copies between DataNodes",
        "DataXceiver, readBlock, DataXceiver.readBlock(, reads",
        "DataXceiver, copyBlock, DataXceiver.copyBlock(, names of the balancer's moves",
        // The ends of the connection are evidence for each operation that a client requests.
        "DataXceiver, remoteAddress, DataXceiver.remoteAddress, "
            + "reads+writes+names of copies between DataNodes+names of the balancer's moves",
        "CachingStrategy, getDropBehind, CachingStrategy.getDropBehind(, writes", // only called by a helper
        "VolumeScanner, scanBlock, VolumeScanner.scanBlock(, names of scans",
        "LocalReplica, getMetaFile, LocalReplica.getMetaFile(, reads+writes", // only called by the advice
    })
    void aMissingSymbolCostsItsFeature(String type, String member, String reported, String features) throws Exception {
        Weaver weaver = Weaver.of(lacking(DN + type, member), Role.DATANODE);
        assertLeftOut(features, "this Hadoop lacks " + DN + reported, weaver);
    }

    /** Reports that only these features are left out, each for the one symbol, and all others are woven. */
    private static void assertLeftOut(String features, String reason, Weaver weaver) {
        List<String> names = new ArrayList<>();
        for (String line : weaver.leftOut()) {
            String[] parts = line.split(": ", 2);
            names.add(parts[0]);
            assertTrue(parts[1].startsWith(reason) && !parts[1].contains(", "), line);
        }
        assertEquals(List.of(features.split("[+]")), names);
    }

    private static ClassFileLocator lacking(String type, String member) throws IOException {
        return new ClassFileLocator.Compound(ClassFileLocator.Simple.of(type, without(real(type), member)), REAL);
    }

    /** Returns the classes without the method in any alternative of the feature. */
    private static ClassFileLocator lacking(Role role, Feature feature, String method) throws IOException {
        List<ClassFileLocator> locators = new ArrayList<>();
        for (Feature f : Points.of(role)) {
            for (Point p : f.points) {
                if (f.name.equals(feature.name) && p.method.equals(method) && REAL.locate(p.type).isResolved()) {
                    locators.add(ClassFileLocator.Simple.of(p.type, without(real(p.type), method)));
                }
            }
        }
        locators.add(REAL);
        return new ClassFileLocator.Compound(locators);
    }

    /** Returns the classes without one, as if a release had renamed it, or without those of a package. */
    private static ClassFileLocator lacking(String type) {
        return new ClassFileLocator() {
            @Override
            public Resolution locate(String name) throws IOException {
                boolean lacks = type.endsWith(".") ? name.startsWith(type) : name.equals(type);
                return lacks ? new Resolution.Illegal(name) : REAL.locate(name);
            }

            @Override
            public void close() { }
        };
    }

    @Test
    void withoutTheDataDirectoriesNothingIsWoven() throws Exception {
        ClassFileLocator classes = lacking(DN + "DataNode", "getStorageLocations");
        Weaver.Missing missing = assertThrows(Weaver.Missing.class, () -> Weaver.of(classes, Role.DATANODE));
        assertEquals(1, missing.symbols.size(), missing.symbols.toString());
        assertTrue(missing.symbols.get(0).startsWith(DN + "DataNode.getStorageLocations("), missing.symbols.get(0));
    }

    /** For each point: its method is missing. All features but its own are woven. */
    @ParameterizedTest
    @EnumSource(value = Role.class, names = {"DATANODE", "EXECUTOR"})
    void eachFeatureIsWovenWholeOrNotAtAll(Role role) throws Exception {
        for (Feature feature : Points.of(role).subList(1, Points.of(role).size())) {
            for (Point p : feature.points) {
                assertEquals(List.of(feature.name), leftOut(role, Weaver.of(lacking(role, feature, p.method), role)));
            }
        }
    }

    /** For each class of Spark: it is missing. Classes that refer to it are lost with it, but never all features. */
    @Test
    void aMissingClassCostsItsFeatures() throws Exception {
        Map<String, String> features = new HashMap<>();
        for (Feature feature : Points.of(Role.EXECUTOR).subList(1, Points.of(Role.EXECUTOR).size())) {
            feature.points.forEach(p -> features.putIfAbsent(p.type, feature.name));
        }
        for (Map.Entry<String, String> e : features.entrySet()) {
            List<String> leftOut = leftOut(Role.EXECUTOR, Weaver.of(lacking(e.getKey()), Role.EXECUTOR));
            // Only the other releases have this class.
            boolean other = e.getKey().endsWith(".Utils$");
            assertTrue(other || leftOut.contains(e.getValue()), e.getKey() + ": " + leftOut);
        }
    }

    @ParameterizedTest
    @CsvSource({"BlockReceiver, writes", "VolumeScanner, names of scans"})
    void aMissingClassOfTheDataNodeCostsItsFeature(String type, String feature) throws Exception {
        assertTrue(leftOut(Role.DATANODE, Weaver.of(lacking(DN + type), Role.DATANODE)).contains(feature));
    }

    /** Returns the features that are left out; all others must be woven whole. */
    private static List<String> leftOut(Role role, Weaver weaver) throws IOException {
        List<String> leftOut = weaver.leftOut().stream().map(line -> line.split(": ", 2)[0]).toList();
        List<String> methods = new ArrayList<>(weaver.methods());
        Set<String> whole = new HashSet<>(leftOut);
        for (Feature f : Points.of(role)) {
            List<String> own = f.points.stream().map(p -> p.type + "." + p.method + p.descriptor).toList();
            if (methods.containsAll(own)) {
                methods.removeAll(own);
                whole.add(f.name);
            }
        }
        assertEquals(List.of(), methods, "features that are woven in part");
        for (Feature f : Points.of(role)) {
            assertTrue(whole.contains(f.name), f.name);
        }
        for (String type : weaver.types()) {
            assertNotNull(woven(weaver, type));
        }
        return leftOut;
    }

    @Test
    void everyMethodOfAnExecutorsListIsWoven() throws Exception {
        Weaver weaver = Weaver.of(LOADER, Role.EXECUTOR);
        assertEquals(20, weaver.methods().size());
        for (String type : weaver.types()) {
            assertFalse(Arrays.equals(real(type), woven(weaver, type)), type);
        }
    }

    @Test
    void everyMethodOfAWorkersListIsWoven() throws Exception {
        Weaver weaver = Weaver.of(LOADER, Role.WORKER);
        assertEquals(4, weaver.methods().size());
        for (String type : weaver.types()) {
            assertFalse(Arrays.equals(real(type), woven(weaver, type)), type);
        }
    }

    /** A Worker has only one feature besides its directories. */
    @Test
    void aMissingSymbolOfTheShuffleServiceCostsAWorkersAgent() throws Exception {
        String resolver = "org.apache.spark.network.shuffle.ExternalShuffleBlockResolver";
        ClassFileLocator classes = lacking(resolver, "getRddBlockData");
        Weaver.Missing missing = assertThrows(Weaver.Missing.class, () -> Weaver.of(classes, Role.WORKER));
        assertTrue(missing.getMessage().startsWith("this Spark lacks "), missing.getMessage());
        assertTrue(missing.symbols.get(0).startsWith(resolver + ".getRddBlockData("), missing.symbols.toString());
    }

    @ParameterizedTest
    @CsvSource({
        "storage.DiskBlockObjectWriter, initialize, writing of spills",
        "io.NioBufferedFileInputStream, byteBuffer, reading of sorted spills",
        "util.collection.ExternalSorter$SpillReader, spill, reading of sorters' spills",
        "network.buffer.FileSegmentManagedBuffer, createInputStream, blocks read on this node",
        // Only called by helpers of the advice, and only read by the plug-in.
        "network.buffer.FileSegmentManagedBuffer, getOffset, blocks sent to other nodes",
        "shuffle.sort.io.LocalDiskShuffleMapOutputWriter, outputTempFile, map outputs",
    })
    void aMissingSymbolOfSparkCostsItsFeature(String type, String member, String feature) throws Exception {
        Weaver weaver = Weaver.of(lacking("org.apache.spark." + type, member), Role.EXECUTOR);
        assertLeftOut(feature, "this Spark lacks org.apache.spark." + type + "." + member, weaver);
    }

    @Test
    void withoutTheLocalDirectoriesNothingIsWoven() throws Exception {
        ClassFileLocator classes = lacking("org.apache.spark.storage.DiskBlockManager", "localDirs");
        Weaver.Missing missing = assertThrows(Weaver.Missing.class, () -> Weaver.of(classes, Role.EXECUTOR));
        assertTrue(missing.getMessage().startsWith("this Spark lacks "), missing.getMessage());
        assertTrue(missing.symbols.contains("org.apache.spark.storage.DiskBlockManager.localDirs"),
                missing.symbols.toString());
    }

    /** Spills are merged into map outputs; no other feature needs the plug-in's classes. */
    @Test
    void anOtherShufflePluginCostsMapOutputs() throws Exception {
        Weaver weaver = Weaver.of(lacking("org.apache.spark.shuffle.sort.io."), Role.EXECUTOR);
        assertLeftOut("merging of spills+map outputs", "this Spark lacks org.apache.spark.shuffle.sort.io.", weaver);
    }

    @Test
    void withoutHadoopTheAgentStaysOut() {
        Weaver.Missing missing =
                assertThrows(Weaver.Missing.class, () -> Weaver.of(lacking("org.apache.hadoop."), Role.DATANODE));
        assertTrue(missing.symbols.contains(DN + "BlockSender"), missing.symbols.toString());
    }

    @Test
    void aClassThatAnotherAgentChangedIsWovenAsItIs() throws Exception {
        Weaver weaver = Weaver.of(LOADER, Role.DATANODE);
        byte[] changed = without(real(DN + "BlockSender"), "LOG"); // nothing that the agent needs
        assertFalse(Arrays.equals(changed, real(DN + "BlockSender")));
        byte[] result = weaver.transform(LOADER, (DN + "BlockSender").replace('.', '/'), null, null, changed);
        assertEquals(3, callers(DN + "BlockSender", result).size());
    }

    @Test
    void aClassThatCannotBeWovenSwitchesTheAgentOff() throws Exception {
        Weaver weaver = Weaver.of(LOADER, Role.DATANODE);
        Gates.install(new Client(UnixSockets.find(), "/none", "test", Role.DATANODE, "", Patience.USUAL));
        assertNotNull(Gates.openWrite(new File("/b"), null, 0));
        byte[] doctored = without(real(DN + "BlockSender"), "sendPacket");
        assertNull(weaver.transform(LOADER, (DN + "BlockSender").replace('.', '/'), null, null, doctored));
        assertNull(Gates.openWrite(new File("/b"), null, 0));
    }

    @Test
    void aSecondVersionInAnotherLoaderCostsItsFeatureThere() throws Exception {
        Weaver weaver = Weaver.of(LOADER, Role.DATANODE);
        Gates.install(new Client(UnixSockets.find(), "/none", "test", Role.DATANODE, "", Patience.USUAL));
        String type = DN + "BlockSender";
        List<String> said = new ArrayList<>();
        Log.to(said::add);
        try {
            for (byte[] second : List.of(without(real(type), "sendPacket"), real(type))) {
                ClassLoader other = new ClassLoader(LOADER) { };
                assertTrue(weaver.transform(other, type.replace('.', '/'), null, null, second) == null, "woven");
            }
        } finally {
            Log.to(message -> System.err.println("penstock-agent: " + message));
        }
        assertNotNull(Gates.openWrite(new File("/b"), null, 0));
        assertEquals(3, callers(type, woven(weaver, type)).size());
        assertEquals(1, weaver.leftOut().size(), weaver.leftOut().toString());
        assertTrue(weaver.leftOut().get(0).startsWith("reads: " + type + " was loaded by another class loader"),
                weaver.leftOut().toString());
        assertEquals(List.of("NOT GOVERNED: " + weaver.leftOut().get(0)), said);
    }

    @Test
    void otherClassesAreLeftAlone() throws Exception {
        Weaver weaver = Weaver.of(LOADER, Role.DATANODE);
        assertNull(weaver.transform(LOADER, "java/lang/String", null, null, new byte[0]));
        assertNull(weaver.transform(LOADER, null, null, null, new byte[0]));
        assertNull(weaver.transform(LOADER, (DN + "FsDatasetAsyncDiskService").replace('.', '/'), null, null,
                new byte[0]));
        assertArrayEquals(woven(weaver, DN + "BlockSender"), woven(weaver, DN + "BlockSender"));
    }

    /** Returns the class without the methods and fields of that name. */
    private static byte[] without(byte[] code, String member) {
        ClassWriter out = new ClassWriter(0);
        new ClassReader(code).accept(new ClassVisitor(Opcodes.ASM9, out) {
            @Override
            public MethodVisitor visitMethod(int access, String name, String descriptor, String signature,
                    String[] exceptions) {
                return name.equals(member) ? null : super.visitMethod(access, name, descriptor, signature, exceptions);
            }

            @Override
            public FieldVisitor visitField(int access, String name, String descriptor, String signature, Object value) {
                return name.equals(member) ? null : super.visitField(access, name, descriptor, signature, value);
            }
        }, 0);
        return out.toByteArray();
    }
}
