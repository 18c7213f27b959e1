package penstock.agent;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.description.field.FieldDescription;
import net.bytebuddy.description.method.MethodDescription;
import net.bytebuddy.description.type.TypeDefinition;
import net.bytebuddy.description.type.TypeDescription;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.jar.asm.AnnotationVisitor;
import net.bytebuddy.jar.asm.ClassReader;
import net.bytebuddy.jar.asm.ClassVisitor;
import net.bytebuddy.jar.asm.Handle;
import net.bytebuddy.jar.asm.MethodVisitor;
import net.bytebuddy.jar.asm.Opcodes;
import net.bytebuddy.jar.asm.Type;
import net.bytebuddy.pool.TypePool;
import penstock.core.Feature;
import penstock.core.Point;
import penstock.core.ReflectedField;
import penstock.core.Stream;

/**
 * Finds the symbols that a feature needs and the host lacks: the methods to advise with their descriptors, the fields
 * that the advice reads, and every class, method and field of the host that the advice uses, or our code that the
 * advice may reach. They are found in our byte code, so no list of them can become outdated.
 *
 * <p>Reached are the methods of ours that are called, and all methods of our classes of which an object is made. So a
 * helper that serves several features adds to each of them only what this feature uses.
 */
final class Symbols {
    private static final String OURS = "penstock/";
    /** Prefixes of the host's classes; all other classes belong to the JVM or to the agent. */
    private static final List<String> HOSTS = Arrays.asList("org/apache/hadoop/", "org/apache/spark/", "scala/",
            "io/netty/", "org/jboss/netty/");

    /** A class of ours: its superclass, and its methods by name and descriptor. */
    private static final class Code {
        String parent;
        final Map<String, Body> methods = new LinkedHashMap<>();
    }

    /** What a method of ours uses. */
    private static final class Body {
        boolean isStatic;
        /** Owner, name and descriptor of methods and fields; the latter are of the host. */
        final List<String[]> methods = new ArrayList<>();
        final List<String[]> fields = new ArrayList<>();
        /** Internal names of the host's types. */
        final Set<String> types = new TreeSet<>();
        /** The advice's fields of the instrumented object, with the types that the advice gives them. */
        final Map<String, Type> carried = new LinkedHashMap<>();
    }

    private final ClassFileLocator classes;
    private final TypePool pool;
    private final Map<String, Code> ours = new HashMap<>();

    Symbols(ClassFileLocator classes, TypePool pool) {
        this.classes = classes;
        this.pool = pool;
    }

    /** Returns what the points of these types need and the host lacks; null means all types of the feature. */
    Set<String> missing(Feature feature, Set<String> types) {
        Set<String> missing = new TreeSet<>();
        Reach reach = new Reach();
        for (Point p : feature.points) {
            if (types == null || types.contains(p.type)) {
                missing.addAll(target(p));
                for (Map.Entry<String, Body> method : code(p.advice.replace('.', '/')).methods.entrySet()) {
                    reach.add(method.getValue());
                }
            }
        }
        missing.addAll(reach.missing());
        for (ReflectedField f : feature.fields) {
            if (!has(f.type, type -> hasField(type, f.name, Type.getType(f.descriptor)))) {
                missing.add(f.type + "." + f.name);
            }
        }
        return missing;
    }

    /** Reports whether the host has this class. */
    boolean exists(String type) {
        return has(type, found -> true);
    }

    /** Returns what the point's own type lacks: itself, the method, or the fields that the advice reads. */
    private Collection<String> target(Point p) {
        List<String> missing = new ArrayList<>();
        if (!exists(p.type)) {
            missing.add(p.type);
            return missing;
        }
        if (!has(p.type, type -> hasMethod(type, p.method, p.descriptor, false))) {
            missing.add(p.type + "." + p.method + p.descriptor);
        }
        for (Body body : code(p.advice.replace('.', '/')).methods.values()) {
            for (Map.Entry<String, Type> field : body.carried.entrySet()) {
                if (!has(p.type, type -> hasField(type, field.getKey(), field.getValue()))) {
                    missing.add(p.type + "." + field.getKey());
                }
            }
        }
        return missing;
    }

    private interface Question {
        boolean of(TypeDescription type);
    }

    /** Asks about a type of the host; the answer is no if the type, or a type that it extends, does not exist. */
    private boolean has(String type, Question question) {
        try {
            TypePool.Resolution resolution = pool.describe(type);
            return resolution.isResolved() && question.of(resolution.resolve());
        } catch (RuntimeException e) {
            return false;
        }
    }

    /** The methods that one feature reaches. */
    private final class Reach {
        private final Set<String> seen = new HashSet<>();
        private final Set<String> made = new HashSet<>();
        private final Deque<Body> left = new ArrayDeque<>();

        void add(Body body) {
            left.add(body);
        }

        Set<String> missing() {
            Set<String> missing = new TreeSet<>();
            for (Body body = left.poll(); body != null; body = left.poll()) {
                for (String type : body.types) {
                    String name = type.replace('/', '.');
                    if (seen.add(type) && !has(name, found -> true)) {
                        missing.add(name);
                    }
                }
                for (String[] field : body.fields) {
                    String owner = field[0].replace('/', '.');
                    if (seen.add(String.join(" ", field)) && has(owner, found -> true)
                            && !has(owner, found -> inherits(found, field[1], field[2]))) {
                        missing.add(owner + "." + field[1]);
                    }
                }
                for (String[] method : body.methods) {
                    if (seen.add(String.join(" ", method))) {
                        called(method[0], method[1], method[2], missing);
                    }
                }
            }
            return missing;
        }

        private void called(String owner, String name, String descriptor, Set<String> missing) {
            if (isHosts(owner)) {
                String type = owner.replace('/', '.');
                if (!has(type, found -> hasMethod(found, name, descriptor, true))) {
                    missing.add(type + "." + name + descriptor);
                }
                return;
            }
            for (String of = owner; of != null && of.startsWith(OURS); of = code(of).parent) {
                Code code = code(of);
                if (seen.add(of + " initialised") && code.methods.containsKey("<clinit>()V")) {
                    add(code.methods.get("<clinit>()V"));
                }
                if (name.equals("<init>") && made.add(of)) {
                    for (Body body : code.methods.values()) {
                        if (!body.isStatic) {
                            add(body);
                        }
                    }
                }
                if (code.methods.containsKey(name + descriptor)) {
                    add(code.methods.get(name + descriptor));
                    return;
                }
            }
        }
    }

    private Code code(String internal) {
        Code known = ours.get(internal);
        if (known != null) {
            return known;
        }
        byte[] bytes;
        try {
            bytes = classes.locate(internal.replace('/', '.')).resolve();
        } catch (IOException | IllegalStateException e) {
            throw new Unreadable(e);
        }
        Code code = new Code();
        ours.put(internal, code);
        new ClassReader(bytes).accept(new ClassVisitor(Opcodes.ASM9) {
            @Override
            public void visit(int version, int access, String name, String signature, String parent,
                    String[] interfaces) {
                code.parent = parent;
            }

            @Override
            public MethodVisitor visitMethod(int access, String name, String descriptor, String signature,
                    String[] exceptions) {
                Body body = new Body();
                body.isStatic = (access & Opcodes.ACC_STATIC) != 0;
                code.methods.put(name + descriptor, body);
                return new Uses(body, Type.getArgumentTypes(descriptor));
            }
        }, ClassReader.SKIP_FRAMES);
        return code;
    }

    /** The agent's own classes cannot be read, so nothing can be checked. */
    private static final class Unreadable extends IllegalStateException {
        private static final long serialVersionUID = 1;

        Unreadable(Exception cause) {
            super("the agent's jar is not on the class path that Hadoop is on", cause);
        }
    }

    /** Collects what the body of a method uses. */
    private static final class Uses extends MethodVisitor {
        private final Body body;
        private final Type[] arguments;

        Uses(Body body, Type[] arguments) {
            super(Opcodes.ASM9);
            this.body = body;
            this.arguments = arguments;
        }

        @Override
        public AnnotationVisitor visitParameterAnnotation(int parameter, String annotation, boolean visible) {
            if (!annotation.equals(Type.getDescriptor(Advice.FieldValue.class))) {
                return null;
            }
            return new AnnotationVisitor(Opcodes.ASM9) {
                @Override
                public void visit(String key, Object value) {
                    if (key.equals("value") && !value.equals(Stream.FIELD)) {
                        body.carried.put((String) value, arguments[parameter]);
                    }
                }
            };
        }

        @Override
        public void visitMethodInsn(int opcode, String owner, String name, String descriptor, boolean isInterface) {
            method(owner, name, descriptor);
        }

        private void method(String owner, String name, String descriptor) {
            if (isHosts(owner) || owner.startsWith(OURS)) {
                body.methods.add(new String[] {owner, name, descriptor});
            }
        }

        @Override
        public void visitFieldInsn(int opcode, String owner, String name, String descriptor) {
            if (isHosts(owner)) {
                body.types.add(owner);
                body.fields.add(new String[] {owner, name, descriptor});
            }
        }

        @Override
        public void visitTypeInsn(int opcode, String type) {
            type(Type.getObjectType(type));
        }

        private void type(Type type) {
            Type element = type.getSort() == Type.ARRAY ? type.getElementType() : type;
            if (element.getSort() == Type.OBJECT && isHosts(element.getInternalName())) {
                body.types.add(element.getInternalName());
            }
        }

        @Override
        public void visitLdcInsn(Object value) {
            if (value instanceof Type) {
                type((Type) value);
            }
        }

        @Override
        public void visitInvokeDynamicInsn(String name, String descriptor, Handle bootstrap, Object... constants) {
            for (Object constant : constants) {
                if (constant instanceof Handle) {
                    Handle handle = (Handle) constant;
                    method(handle.getOwner(), handle.getName(), handle.getDesc());
                }
            }
        }
    }

    private static boolean isHosts(String internalName) {
        if (internalName.contains(ServiceCopies.NETTY_INSIDE)) {
            return true;
        }
        for (String prefix : HOSTS) {
            if (internalName.startsWith(prefix)) {
                return true;
            }
        }
        return false;
    }

    /** Reports whether the field exists. Its type may be a subtype of the type that the advice uses. */
    private boolean hasField(TypeDescription type, String name, Type as) {
        for (FieldDescription field : type.getDeclaredFields()) {
            if (field.getName().equals(name)) {
                return field.getDescriptor().equals(as.getDescriptor()) || as.getSort() == Type.OBJECT
                        && field.getType().asErasure().isAssignableTo(pool.describe(as.getClassName()).resolve());
            }
        }
        return false;
    }

    private static boolean inherits(TypeDefinition type, String name, String descriptor) {
        for (FieldDescription field : type.getDeclaredFields()) {
            if (field.getName().equals(name) && field.getDescriptor().equals(descriptor)) {
                return true;
            }
        }
        for (TypeDefinition parent : type.getInterfaces()) {
            if (inherits(parent, name, descriptor)) {
                return true;
            }
        }
        return type.getSuperClass() != null && inherits(type.getSuperClass(), name, descriptor);
    }

    /**
     * Compares the internal name, which is &lt;init&gt; for a constructor. Both the check and the weaving use this
     * test.
     */
    static boolean is(MethodDescription method, String name, String descriptor) {
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
