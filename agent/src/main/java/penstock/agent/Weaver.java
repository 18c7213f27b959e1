package penstock.agent;

import static net.bytebuddy.matcher.ElementMatchers.named;

import java.io.IOException;
import java.lang.instrument.ClassFileTransformer;
import java.security.ProtectionDomain;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import net.bytebuddy.ByteBuddy;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.description.field.FieldDescription;
import net.bytebuddy.description.method.MethodDescription;
import net.bytebuddy.description.modifier.FieldPersistence;
import net.bytebuddy.description.modifier.SyntheticState;
import net.bytebuddy.description.modifier.Visibility;
import net.bytebuddy.description.type.TypeDefinition;
import net.bytebuddy.description.type.TypeDescription;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.dynamic.DynamicType;
import net.bytebuddy.dynamic.scaffold.TypeValidation;
import net.bytebuddy.implementation.bytecode.member.MethodInvocation;
import net.bytebuddy.jar.asm.AnnotationVisitor;
import net.bytebuddy.jar.asm.ClassReader;
import net.bytebuddy.jar.asm.ClassVisitor;
import net.bytebuddy.jar.asm.MethodVisitor;
import net.bytebuddy.jar.asm.Opcodes;
import net.bytebuddy.jar.asm.Type;
import net.bytebuddy.pool.TypePool;

/**
 * Puts the advice into Hadoop's classes, at an allow-list of methods and nowhere
 * else, and all of it or nothing.
 *
 * <p>Before any class of the DataNode is loaded, every symbol is looked up in the
 * class files: the methods to advise with their descriptors, the fields that the
 * advice reads, and, taken from the advice's own byte code so that no list can
 * be forgotten, every Hadoop method that it calls. If one is missing, this is a
 * Hadoop that nobody has tried the agent with. Then all classes are woven, and
 * only after that does the transformer hand them to the JVM. A class that
 * arrives in another form, since another agent was there first, is checked and
 * woven as it is.
 */
final class Weaver implements ClassFileTransformer {
    private static final String DN = "org.apache.hadoop.hdfs.server.datanode.";
    private static final String XCEIVER = DN + "DataXceiver";
    private static final String SENDER = DN + "BlockSender";
    private static final String RECEIVER = DN + "BlockReceiver";
    private static final String BLOCK = "(Lorg/apache/hadoop/hdfs/protocol/ExtendedBlock;";
    private static final String TOKEN = "Lorg/apache/hadoop/security/token/Token;";
    private static final String STORAGE = "Lorg/apache/hadoop/fs/StorageType;";
    private static final String NODE = "Lorg/apache/hadoop/hdfs/protocol/DatanodeInfo;";
    private static final String STAGE = "Lorg/apache/hadoop/hdfs/protocol/datatransfer/BlockConstructionStage;";
    private static final String CHECKSUM = "Lorg/apache/hadoop/util/DataChecksum;";
    private static final String CACHING = "Lorg/apache/hadoop/hdfs/server/datanode/CachingStrategy;";
    private static final String DATANODE = "Lorg/apache/hadoop/hdfs/server/datanode/DataNode;";
    private static final String STRING = "Ljava/lang/String;";

    /** The allow-list. */
    private static final List<Point> POINTS = Collections.unmodifiableList(Arrays.asList(
            new Point(DN + "DataNode", "runDatanodeDaemon", "()V", NodeAdvice.class),
            new Point(XCEIVER, "readBlock", BLOCK + TOKEN + STRING + "JJZ" + CACHING + ")V",
                    NameAdvice.ThirdArgument.class),
            new Point(XCEIVER, "transferBlock",
                    BLOCK + TOKEN + STRING + "[" + NODE + "[" + STORAGE + "[" + STRING + ")V",
                    NameAdvice.ThirdArgument.class),
            new Point(XCEIVER, "writeBlock",
                    BLOCK + STORAGE + TOKEN + STRING + "[" + NODE + "[" + STORAGE + NODE + STAGE + "IJJJ" + CHECKSUM
                            + CACHING + "ZZ[Z" + STRING + "[" + STRING + ")V",
                    NameAdvice.FourthArgument.class),
            new Point(XCEIVER, "copyBlock", BLOCK + TOKEN + ")V", NameAdvice.Balancer.class),
            new Point(XCEIVER, "replaceBlock", BLOCK + STORAGE + TOKEN + STRING + NODE + STRING + ")V",
                    NameAdvice.Balancer.class),
            new Point(DN + "DataNode$DataTransfer", "run", "()V", NameAdvice.ClientField.class),
            new Point(DN + "VolumeScanner", "scanBlock", BLOCK + "J)J", NameAdvice.Scanner.class),
            new Point(SENDER, MethodDescription.CONSTRUCTOR_INTERNAL_NAME,
                    BLOCK + "JJZZZ" + DATANODE + STRING + CACHING + ")V", ReadAdvice.Construct.class),
            new Point(SENDER, "sendPacket",
                    "(Ljava/nio/ByteBuffer;ILjava/io/OutputStream;ZLorg/apache/hadoop/hdfs/util/DataTransferThrottler;)I",
                    ReadAdvice.Send.class),
            new Point(SENDER, "close", "()V", ReadAdvice.Close.class),
            new Point(RECEIVER, MethodDescription.CONSTRUCTOR_INTERNAL_NAME,
                    BLOCK + STORAGE + "Ljava/io/DataInputStream;" + STRING + STRING + STAGE + "JJJ" + STRING + NODE
                            + DATANODE + CHECKSUM + CACHING + "ZZ" + STRING + ")V",
                    WriteAdvice.Construct.class),
            new Point(RECEIVER, "receivePacket", "()I", WriteAdvice.Receive.class),
            new Point(RECEIVER, "close", "()V", WriteAdvice.Close.class),
            new Point("org.apache.hadoop.hdfs.protocol.datatransfer.PacketReceiver", "receiveNextPacket",
                    "(Ljava/io/InputStream;)V", WriteAdvice.Packet.class)));

    /** One method and its advice. */
    private static final class Point {
        final String type;
        final String method;
        final String descriptor;
        final String advice;

        Point(String type, String method, String descriptor, Class<?> advice) {
            this.type = type;
            this.method = method;
            this.descriptor = descriptor;
            this.advice = advice.getName();
        }
    }

    /** This Hadoop is not one that the agent knows. */
    static final class Missing extends Exception {
        private static final long serialVersionUID = 1;
        final transient List<String> symbols;

        Missing(Set<String> symbols) {
            super("this Hadoop lacks " + symbols.size() + " of the methods and fields that the agent needs");
            this.symbols = new ArrayList<>(symbols);
        }
    }

    private final ClassFileLocator classes;
    private final Map<String, byte[]> originals = new HashMap<>();
    private final Map<String, byte[]> woven = new LinkedHashMap<>();

    private Weaver(ClassFileLocator classes) {
        this.classes = classes;
    }

    /** Checks and weaves what loader would load, without loading it. */
    static Weaver of(ClassLoader loader) throws Missing, IOException {
        return of(ClassFileLocator.ForClassLoader.of(loader));
    }

    static Weaver of(ClassFileLocator classes) throws Missing, IOException {
        Weaver weaver = new Weaver(classes);
        TypePool pool = TypePool.Default.of(classes);
        weaver.check(pool, weaver.types());
        for (String type : weaver.types()) {
            weaver.originals.put(type, classes.locate(type).resolve());
            weaver.woven.put(type, weave(type, classes, pool));
        }
        return weaver;
    }

    Set<String> types() {
        Set<String> types = new TreeSet<>();
        for (Point p : POINTS) {
            types.add(p.type);
        }
        return types;
    }

    List<String> methods() {
        List<String> methods = new ArrayList<>();
        for (Point p : POINTS) {
            methods.add(p.type + "." + p.method + p.descriptor);
        }
        return methods;
    }

    @Override
    public byte[] transform(ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain,
            byte[] original) {
        String type = name == null ? "" : name.replace('/', '.');
        byte[] ready = woven.get(type);
        if (ready == null) {
            return null;
        }
        try {
            if (Arrays.equals(original, originals.get(type))) {
                return ready;
            }
            ClassFileLocator changed =
                    new ClassFileLocator.Compound(ClassFileLocator.Simple.of(type, original), classes);
            TypePool pool = TypePool.Default.of(changed);
            check(pool, Collections.singleton(type));
            return weave(type, changed, pool);
        } catch (Throwable t) {
            // Half of the methods without the other half would misname I/O.
            Gates.install(null);
            Agent.log("switched itself off: " + type + " came in a form that cannot be woven: " + t);
            return null;
        }
    }

    private static byte[] weave(String type, ClassFileLocator locator, TypePool pool) {
        DynamicType.Builder<?> builder = new ByteBuddy().with(TypeValidation.DISABLED)
                .redefine(pool.describe(type).resolve(), locator);
        if (type.equals(SENDER) || type.equals(RECEIVER)) {
            builder = builder.defineField(ReadAdvice.STREAM, pool.describe(Stream.class.getName()).resolve(),
                    Visibility.PRIVATE, FieldPersistence.TRANSIENT, SyntheticState.SYNTHETIC);
        }
        MethodDescription failed = pool.describe(Gates.class.getName()).resolve().getDeclaredMethods()
                .filter(named("failed")).getOnly();
        for (Point p : POINTS) {
            if (p.type.equals(type)) {
                builder = builder.visit(Advice.to(pool.describe(p.advice).resolve(), locator)
                        .withExceptionHandler(MethodInvocation.invoke(failed.asDefined()))
                        .on(method -> is(method, p.method, p.descriptor)));
            }
        }
        return builder.make(pool).getBytes();
    }

    private void check(TypePool pool, Set<String> types) throws Missing {
        Set<String> missing = new TreeSet<>();
        for (Point p : POINTS) {
            if (types.contains(p.type)) {
                TypePool.Resolution resolution = pool.describe(p.type);
                if (!resolution.isResolved()) {
                    missing.add(p.type);
                    continue;
                }
                if (!hasMethod(resolution.resolve(), p.method, p.descriptor, false)) {
                    missing.add(p.type + "." + p.method + p.descriptor);
                }
                references(pool, p, resolution.resolve(), missing);
            }
        }
        if (!missing.isEmpty()) {
            throw new Missing(missing);
        }
    }

    /** Adds to missing what the advice of p uses and the pool does not have. */
    private void references(TypePool pool, Point p, TypeDescription target, Set<String> missing) {
        byte[] advice;
        try {
            advice = classes.locate(p.advice).resolve();
        } catch (IOException | IllegalStateException e) {
            throw new IllegalStateException("the agent's jar is not on the class path that Hadoop is on", e);
        }
        new ClassReader(advice).accept(new ClassVisitor(Opcodes.ASM9) {
            @Override
            public MethodVisitor visitMethod(int access, String name, String descriptor, String signature,
                    String[] exceptions) {
                Type[] arguments = Type.getArgumentTypes(descriptor);
                return new MethodVisitor(Opcodes.ASM9) {
                    @Override
                    public AnnotationVisitor visitParameterAnnotation(int parameter, String annotation, boolean visible) {
                        if (!annotation.equals(Type.getDescriptor(Advice.FieldValue.class))) {
                            return null;
                        }
                        return new AnnotationVisitor(Opcodes.ASM9) {
                            @Override
                            public void visit(String key, Object value) {
                                if (key.equals("value") && !value.equals(ReadAdvice.STREAM)
                                        && !hasField(target, (String) value, arguments[parameter].getDescriptor())) {
                                    missing.add(p.type + "." + value);
                                }
                            }
                        };
                    }

                    @Override
                    public void visitMethodInsn(int opcode, String owner, String called, String calledDescriptor,
                            boolean isInterface) {
                        if (owner.startsWith("org/apache/hadoop/")) {
                            TypePool.Resolution callee = pool.describe(owner.replace('/', '.'));
                            if (!callee.isResolved()
                                    || !hasMethod(callee.resolve(), called, calledDescriptor, true)) {
                                missing.add(owner.replace('/', '.') + "." + called + calledDescriptor);
                            }
                        }
                    }
                };
            }
        }, ClassReader.SKIP_FRAMES);
    }

    private static boolean hasField(TypeDescription type, String name, String descriptor) {
        for (FieldDescription field : type.getDeclaredFields()) {
            if (field.getName().equals(name) && field.getDescriptor().equals(descriptor)) {
                return true;
            }
        }
        return false;
    }

    /** The internal name, which is &lt;init&gt; for a constructor. One test for the check and for the weaving. */
    private static boolean is(MethodDescription method, String name, String descriptor) {
        return method.getInternalName().equals(name) && method.getDescriptor().equals(descriptor);
    }

    private static boolean hasMethod(TypeDefinition type, String name, String descriptor, boolean inherited) {
        for (MethodDescription method : type.getDeclaredMethods()) {
            if (is(method, name, descriptor)) {
                return true;
            }
        }
        if (!inherited) {
            return false;
        }
        if (type.getSuperClass() != null && hasMethod(type.getSuperClass(), name, descriptor, true)) {
            return true;
        }
        for (TypeDefinition parent : type.getInterfaces()) {
            if (hasMethod(parent, name, descriptor, true)) {
                return true;
            }
        }
        return false;
    }
}
