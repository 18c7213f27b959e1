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
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
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
import penstock.core.Client;
import penstock.core.Gates;
import penstock.core.Patience;
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
        assertEquals(15, calling.size());
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
        "BlockSender, sendPacket, BlockSender.sendPacket(",
        "BlockReceiver, receivePacket, BlockReceiver.receivePacket(",
        "BlockSender, endOffset, BlockSender.endOffset",
        "BlockReceiver, replicaInfo, BlockReceiver.replicaInfo",
        "DataNode$DataTransfer, clientname, DataNode$DataTransfer.clientname",
        "DataNode$DataTransfer, stage, DataNode$DataTransfer.stage",
        "DataXceiver, readBlock, DataXceiver.readBlock(",
        "DataXceiver, remoteAddress, DataXceiver.remoteAddress",
        "DataXceiver, localAddress, DataXceiver.localAddress",
        "CachingStrategy, getDropBehind, CachingStrategy.getDropBehind(", // only called by a helper of the advice
        "VolumeScanner, scanBlock, VolumeScanner.scanBlock(",
        "LocalReplica, getMetaFile, LocalReplica.getMetaFile(", // only called by the advice
        "DataNode, getStorageLocations, DataNode.getStorageLocations(",
    })
    void aMissingSymbolKeepsTheAgentOut(String type, String member, String reported) throws Exception {
        byte[] doctored = without(real(DN + type), member);
        ClassFileLocator classes = new ClassFileLocator.Compound(ClassFileLocator.Simple.of(DN + type, doctored), REAL);
        Weaver.Missing missing = assertThrows(Weaver.Missing.class, () -> Weaver.of(classes, Role.DATANODE));
        assertEquals(1, missing.symbols.size(), missing.symbols.toString());
        assertTrue(missing.symbols.get(0).startsWith(DN + reported), missing.symbols.get(0));
    }

    @Test
    void everyMethodOfAnExecutorsListIsWoven() throws Exception {
        Weaver weaver = Weaver.of(LOADER, Role.EXECUTOR);
        assertEquals(20, weaver.methods().size());
        for (String type : weaver.types()) {
            assertFalse(Arrays.equals(real(type), woven(weaver, type)), type);
        }
    }

    @ParameterizedTest
    @CsvSource({
        "storage.DiskBlockObjectWriter, initialize, storage.DiskBlockObjectWriter.initialize(",
        "storage.DiskBlockManager, localDirs, storage.DiskBlockManager.localDirs",
        "io.NioBufferedFileInputStream, byteBuffer, io.NioBufferedFileInputStream.byteBuffer",
        "util.collection.ExternalSorter$SpillReader, spill, util.collection.ExternalSorter$SpillReader.spill",
        "util.SparkStreamUtils, copyFileStreamNIO, util.SparkStreamUtils.copyFileStreamNIO(",
        "network.buffer.FileSegmentManagedBuffer, offset, network.buffer.FileSegmentManagedBuffer.offset",
        // Only called by helpers of the advice, and only read by the plug-in.
        "network.buffer.FileSegmentManagedBuffer, getOffset, network.buffer.FileSegmentManagedBuffer.getOffset(",
        "shuffle.sort.io.LocalDiskShuffleMapOutputWriter, outputTempFile, "
            + "shuffle.sort.io.LocalDiskShuffleMapOutputWriter.outputTempFile",
    })
    void aMissingSymbolOfSparkKeepsTheAgentOut(String type, String member, String reported) throws Exception {
        String spark = "org.apache.spark.";
        byte[] doctored = without(real(spark + type), member);
        ClassFileLocator classes =
                new ClassFileLocator.Compound(ClassFileLocator.Simple.of(spark + type, doctored), REAL);
        Weaver.Missing missing = assertThrows(Weaver.Missing.class, () -> Weaver.of(classes, Role.EXECUTOR));
        assertTrue(missing.getMessage().startsWith("this Spark lacks "), missing.getMessage());
        for (String symbol : missing.symbols) {
            assertTrue(symbol.startsWith(spark + reported), missing.symbols.toString());
        }
    }

    @Test
    void aMissingClassKeepsTheAgentOut() {
        ClassFileLocator none = new ClassFileLocator() {
            @Override
            public Resolution locate(String name) throws IOException {
                return name.startsWith("org.apache.hadoop.") ? new Resolution.Illegal(name) : REAL.locate(name);
            }

            @Override
            public void close() { }
        };
        Weaver.Missing missing = assertThrows(Weaver.Missing.class, () -> Weaver.of(none, Role.DATANODE));
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
