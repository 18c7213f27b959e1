package penstock.agent;

import static net.bytebuddy.matcher.ElementMatchers.named;

import java.io.IOException;
import java.lang.instrument.ClassFileTransformer;
import java.security.ProtectionDomain;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
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
import penstock.core.Gates;
import penstock.core.Log;
import penstock.core.Point;
import penstock.core.ReflectedField;
import penstock.core.Role;
import penstock.core.Stream;

/**
 * Instruments Hadoop's classes with the advice, only at an allow-list of methods, and either at all of them or at none.
 *
 * <p>Before any class of the DataNode is loaded, every symbol is looked up in the class files: the methods to advise
 * with their descriptors, the fields that the advice reads, and every Hadoop method that the advice, or a class of ours
 * that the advice calls, uses. The Hadoop methods are found in the byte code, so no list of them can become outdated.
 * If a symbol is missing, this version of Hadoop is not supported, and nothing is instrumented. Otherwise all classes
 * are instrumented first, and only after that does the transformer pass them to the JVM. If another agent has changed a
 * class first, the changed class is checked and instrumented.
 */
public final class Weaver implements ClassFileTransformer {
    /** The agent does not support this version of Hadoop. */
    static final class Missing extends Exception {
        private static final long serialVersionUID = 1;
        final transient List<String> symbols;

        Missing(Set<String> symbols, Role role) {
            super("this " + (role == Role.EXECUTOR ? "Spark" : "Hadoop") + " lacks " + symbols.size()
                    + " of the methods and fields that the agent needs");
            this.symbols = new ArrayList<>(symbols);
        }
    }

    private static final String OURS = "penstock/";
    /** Prefixes of the host's classes; all other classes belong to the JVM or to the agent. */
    private static final List<String> HOSTS = Arrays.asList("org/apache/hadoop/", "org/apache/spark/", "scala/",
            "io/netty/");

    private final Role role;
    private final ClassFileLocator classes;
    private final List<Point> points;
    private final List<ReflectedField> fields;
    /** The types to which a field for the stream is added. */
    private final Set<String> carriers;
    private final String carried;
    private final Map<String, byte[]> originals = new HashMap<>();
    private final Map<String, byte[]> woven = new LinkedHashMap<>();

    private Weaver(ClassFileLocator classes, Role role) {
        this.role = role;
        this.classes = classes;
        this.points = Points.of(role);
        this.fields = Points.fields(role);
        this.carriers = Points.carriers(role);
        this.carried = Points.carried(role);
    }

    /** Checks and instruments the classes that loader would load, without loading them. */
    static Weaver of(ClassLoader loader, Role role) throws Missing, IOException {
        return of(ClassFileLocator.ForClassLoader.of(loader), role);
    }

    static Weaver of(ClassFileLocator classes, Role role) throws Missing, IOException {
        Weaver weaver = new Weaver(classes, role);
        TypePool pool = TypePool.Default.of(classes);
        weaver.check(pool, weaver.types());
        for (String type : weaver.types()) {
            weaver.originals.put(type, classes.locate(type).resolve());
            weaver.woven.put(type, weaver.weave(type, classes, pool));
        }
        return weaver;
    }

    Set<String> types() {
        Set<String> types = new TreeSet<>();
        for (Point p : points) {
            types.add(p.type);
        }
        return types;
    }

    List<String> methods() {
        List<String> methods = new ArrayList<>();
        for (Point p : points) {
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
            // If only some of the methods were instrumented, I/O would be attributed to wrong flows.
            Gates.switchOff();
            Log.say("switched itself off: " + type + " came in a form that cannot be instrumented: " + t);
            return null;
        }
    }

    private byte[] weave(String type, ClassFileLocator locator, TypePool pool) {
        DynamicType.Builder<?> builder = new ByteBuddy().with(TypeValidation.DISABLED)
                .redefine(pool.describe(type).resolve(), locator);
        if (carriers.contains(type)) {
            builder = builder.defineField(Stream.FIELD, pool.describe(carried).resolve(),
                    Visibility.PRIVATE, FieldPersistence.TRANSIENT, SyntheticState.SYNTHETIC);
        }
        MethodDescription failed = pool.describe(Gates.class.getName()).resolve().getDeclaredMethods()
                .filter(named("failed")).getOnly();
        for (Point p : points) {
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
        Set<String> helpers = new HashSet<>();
        for (Point p : points) {
            if (types.contains(p.type)) {
                TypePool.Resolution resolution = pool.describe(p.type);
                if (!resolution.isResolved()) {
                    missing.add(p.type);
                    continue;
                }
                if (!hasMethod(resolution.resolve(), p.method, p.descriptor, false)) {
                    missing.add(p.type + "." + p.method + p.descriptor);
                }
                references(pool, p, p.advice, resolution.resolve(), helpers, missing);
            }
        }
        for (ReflectedField f : fields) {
            TypePool.Resolution resolution = pool.describe(f.type);
            if (!resolution.isResolved() || !hasField(pool, resolution.resolve(), f.name,
                    Type.getType(f.descriptor))) {
                missing.add(f.type + "." + f.name);
            }
        }
        if (!missing.isEmpty()) {
            throw new Missing(missing, role);
        }
    }

    /**
     * Adds to missing the symbols that a class of ours uses and the pool lacks. The class is the advice of p or a
     * helper that the advice calls; each helper is examined once.
     */
    private void references(TypePool pool, Point p, String ours, TypeDescription target, Set<String> helpers,
            Set<String> missing) {
        byte[] code;
        try {
            code = classes.locate(ours).resolve();
        } catch (IOException | IllegalStateException e) {
            throw new IllegalStateException("the agent's jar is not on the class path that Hadoop is on", e);
        }
        new ClassReader(code).accept(new ClassVisitor(Opcodes.ASM9) {
            @Override
            public MethodVisitor visitMethod(int access, String name, String descriptor, String signature,
                    String[] exceptions) {
                Type[] arguments = Type.getArgumentTypes(descriptor);
                return new MethodVisitor(Opcodes.ASM9) {
                    @Override
                    public AnnotationVisitor visitParameterAnnotation(int parameter, String annotation,
                            boolean visible) {
                        if (!annotation.equals(Type.getDescriptor(Advice.FieldValue.class))) {
                            return null;
                        }
                        return new AnnotationVisitor(Opcodes.ASM9) {
                            @Override
                            public void visit(String key, Object value) {
                                if (key.equals("value") && !value.equals(Stream.FIELD)
                                        && !hasField(pool, target, (String) value, arguments[parameter])) {
                                    missing.add(p.type + "." + value);
                                }
                            }
                        };
                    }

                    @Override
                    public void visitMethodInsn(int opcode, String owner, String called, String calledDescriptor,
                            boolean isInterface) {
                        if (isHosts(owner)) {
                            TypePool.Resolution callee = pool.describe(owner.replace('/', '.'));
                            if (!callee.isResolved()
                                    || !hasMethod(callee.resolve(), called, calledDescriptor, true)) {
                                missing.add(owner.replace('/', '.') + "." + called + calledDescriptor);
                            }
                        } else if (owner.startsWith(OURS) && helpers.add(owner)) {
                            references(pool, p, owner.replace('/', '.'), target, helpers, missing);
                        }
                    }
                };
            }
        }, ClassReader.SKIP_FRAMES);
    }

    private static boolean isHosts(String internalName) {
        for (String prefix : HOSTS) {
            if (internalName.startsWith(prefix)) {
                return true;
            }
        }
        return false;
    }

    /** Reports whether the field exists. Its type may be a subtype of the type that the advice uses. */
    private static boolean hasField(TypePool pool, TypeDescription type, String name, Type as) {
        for (FieldDescription field : type.getDeclaredFields()) {
            if (field.getName().equals(name)) {
                return field.getDescriptor().equals(as.getDescriptor()) || as.getSort() == Type.OBJECT
                        && field.getType().asErasure().isAssignableTo(pool.describe(as.getClassName()).resolve());
            }
        }
        return false;
    }

    /**
     * Compares the internal name, which is &lt;init&gt; for a constructor. Both the check and the weaving use this
     * test.
     */
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
