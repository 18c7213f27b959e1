package penstock.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
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

/** Instruments the NodeManager's classes of each version; 3.3.6 has those of netty 3. */
class ShuffleWeaverTest {
    private static final boolean NETTY_3 = System.getProperty("penstock.hadoop.version", "").startsWith("3.3.");
    private static final ClassLoader LOADER = ShuffleWeaverTest.class.getClassLoader();
    private static final ClassFileLocator REAL = ClassFileLocator.ForClassLoader.of(LOADER);
    private static final String SHUFFLE = NodeManagerPoints.SHUFFLE;

    @Test
    void weavesBothMethods() throws Exception {
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
                            calls[0] += owner.matches("penstock/(shuffle/.*|core/LocalDirectories)") ? 1 : 0;
                        }
                    };
                }
            }, 0);
            assertEquals(1, calls[0], type);
        }
    }

    @Test
    void theAgentIsIn() {
        Instrumentation jvm = (Instrumentation) Proxy.newProxyInstance(LOADER, new Class<?>[] {Instrumentation.class},
                (proxy, method, arguments) -> method.getName().equals("getAllLoadedClasses") ? new Class<?>[0] : null);
        List<String> said = new ArrayList<>();
        Log.to(said::add);
        try {
            Status status = Agent.start("role=nodemanager,socket=/s", jvm);
            assertEquals("woven", status.getState());
            assertEquals(List.of(), status.getLeftOut());
        } finally {
            Gates.install(null);
            Log.to(message -> System.err.println("penstock-agent: " + message));
        }
    }

    @ParameterizedTest
    @CsvSource({
        "org.apache.hadoop.mapred.ShuffleHandler, serviceInit, both",
        "org.apache.hadoop.mapred.FadvisedFileRegion, identifier, both", // read by reflection
        "org.apache.hadoop.mapred.FadvisedChunkedFile, identifier, both",
        "org.apache.hadoop.mapred.ShuffleChannelInitializer, initChannel, 4",
        "io.netty.handler.stream.ChunkedWriteHandler, resumeTransfer, 4", // called by a helper's helper
        "io.netty.handler.stream.ChunkedFile, startOffset, 4",
        "org.apache.hadoop.mapred.ShuffleHandler$HttpPipelineFactory, getPipeline, 3",
        "org.jboss.netty.handler.stream.ChunkedWriteHandler, resumeTransfer, 3",
        "org.jboss.netty.handler.stream.ChunkedFile, getStartOffset, 3",
    })
    void aMissingSymbolKeepsTheAgentOut(String type, String member, String netty) throws Exception {
        if (netty.equals(NETTY_3 ? "4" : "3")) {
            return; // not of this release
        }
        ClassFileLocator classes =
                new ClassFileLocator.Compound(ClassFileLocator.Simple.of(type, without(type, member)), REAL);
        Weaver.Missing missing = assertThrows(Weaver.Missing.class, () -> Weaver.of(classes, Role.NODEMANAGER));
        assertEquals(1, missing.symbols.size(), missing.symbols.toString());
        assertTrue(missing.symbols.get(0).contains("." + member), missing.symbols.toString());
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
