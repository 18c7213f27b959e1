package penstock.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.jar.asm.ClassReader;
import net.bytebuddy.jar.asm.ClassVisitor;
import net.bytebuddy.jar.asm.ClassWriter;
import net.bytebuddy.jar.asm.FieldVisitor;
import net.bytebuddy.jar.asm.MethodVisitor;
import net.bytebuddy.jar.asm.Opcodes;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import penstock.core.Gates;
import penstock.core.Log;
import penstock.core.Role;
import penstock.core.Status;
import penstock.shuffle.NodeManagerPoints;

/** Instruments the NodeManager's classes of each version; with 3.3.6 the agent does nothing. */
class ShuffleWeaverTest {
    private static final boolean NETTY_3 = System.getProperty("penstock.hadoop.version", "").startsWith("3.3.");
    private static final ClassLoader LOADER = ShuffleWeaverTest.class.getClassLoader();
    private static final ClassFileLocator REAL = ClassFileLocator.ForClassLoader.of(LOADER);
    private static final String SHUFFLE = NodeManagerPoints.SHUFFLE;

    @Test
    void weavesWhereItCanAndStaysOutOfNetty3() throws Exception {
        if (NETTY_3) {
            Weaver.Missing missing = assertThrows(Weaver.Missing.class, () -> Weaver.of(LOADER, Role.NODEMANAGER));
            assertTrue(missing.symbols.contains(SHUFFLE + "ShuffleChannelInitializer"), missing.symbols.toString());
            assertTrue(missing.symbols.contains(SHUFFLE + "FadvisedFileRegion.release()Z"),
                    missing.symbols.toString());
            assertFalse(missing.symbols.contains(SHUFFLE + "ShuffleHandler"), "these are not Hadoop's classes");
            return;
        }
        Weaver weaver = Weaver.of(LOADER, Role.NODEMANAGER);
        assertEquals(2, weaver.methods().size());
        for (String type : weaver.types()) {
            byte[] woven = weaver.transform(LOADER, type.replace('.', '/'), null, null, REAL.locate(type).resolve());
            int[] calls = {0};
            new ClassReader(woven).accept(new ClassVisitor(Opcodes.ASM9) {
                @Override
                public MethodVisitor visitMethod(int access, String name, String descriptor, String signature,
                        String[] exceptions) {
                    return new MethodVisitor(Opcodes.ASM9) {
                        @Override
                        public void visitMethodInsn(int opcode, String owner, String called, String calledDescriptor,
                                boolean isInterface) {
                            calls[0] += owner.equals("penstock/shuffle/Shuffle") ? 1 : 0;
                        }
                    };
                }
            }, 0);
            assertEquals(1, calls[0], type);
        }
    }

    @Test
    void theAgentSaysWhetherItIsIn() {
        Instrumentation jvm = (Instrumentation) Proxy.newProxyInstance(LOADER, new Class<?>[] {Instrumentation.class},
                (proxy, method, arguments) -> method.getName().equals("getAllLoadedClasses") ? new Class<?>[0] : null);
        List<String> said = new ArrayList<>();
        Log.to(said::add);
        try {
            Status status = Agent.start("role=nodemanager,socket=/s", jvm);
            if (NETTY_3) {
                assertTrue(status.getState().startsWith("out: this Hadoop lacks "), status.getState());
                assertTrue(said.get(0).startsWith("not active, nothing is instrumented: this Hadoop lacks "), said.toString());
                assertTrue(said.get(0).contains("ShuffleChannelInitializer"), said.toString());
            } else {
                assertEquals("woven", status.getState());
            }
        } finally {
            Gates.install(null);
            Log.to(message -> System.err.println("penstock-agent: " + message));
        }
    }

    @ParameterizedTest
    @CsvSource({
        "org.apache.hadoop.mapred.ShuffleHandler, serviceInit",
        "org.apache.hadoop.mapred.ShuffleChannelInitializer, initChannel",
        "org.apache.hadoop.mapred.FadvisedFileRegion, identifier", // read by reflection
        "org.apache.hadoop.mapred.FadvisedChunkedFile, identifier",
        "io.netty.handler.stream.ChunkedWriteHandler, resumeTransfer", // called by a helper's helper
        "io.netty.handler.stream.ChunkedFile, startOffset",
    })
    void aMissingSymbolKeepsTheAgentOut(String type, String member) throws Exception {
        if (NETTY_3 && !REAL.locate(type).isResolved()) {
            return; // it is missing already
        }
        ClassFileLocator classes =
                new ClassFileLocator.Compound(ClassFileLocator.Simple.of(type, without(type, member)), REAL);
        Weaver.Missing missing = assertThrows(Weaver.Missing.class, () -> Weaver.of(classes, Role.NODEMANAGER));
        assertTrue(NETTY_3 || missing.symbols.size() == 1, missing.symbols.toString());
        assertTrue(NETTY_3 || missing.symbols.get(0).contains("." + member), missing.symbols.toString());
    }

    private static byte[] without(String type, String member) throws IOException {
        ClassWriter out = new ClassWriter(0);
        new ClassReader(REAL.locate(type).resolve()).accept(new ClassVisitor(Opcodes.ASM9, out) {
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
