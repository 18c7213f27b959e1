package penstock.agent;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import net.bytebuddy.description.method.MethodDescription;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.dynamic.loading.ClassInjector;
import net.bytebuddy.jar.asm.ClassReader;
import net.bytebuddy.jar.asm.ClassWriter;
import net.bytebuddy.jar.asm.Opcodes;
import net.bytebuddy.jar.asm.commons.ClassRemapper;
import net.bytebuddy.jar.asm.commons.Remapper;
import net.bytebuddy.pool.TypePool;
import penstock.spark.ShuffleServicePoints;

/**
 * Copies of our classes for a Spark whose netty has other names. Spark's distribution moves netty's classes to
 * org.sparkproject.io.netty in the jar of its shuffle service, so that they do not conflict with the host's netty. The copies are
 * made from our class files: only names change.
 */
final class RenamedNetty {
    private static final String NETTY = "io/netty/";
    /** Part of the names of all renamed classes of netty. */
    static final String NETTY_INSIDE = "/" + NETTY;
    private static final String ADVICE = "penstock.spark.ShuffleServiceAdvice$Pipeline";

    /** What stands before the names of netty's classes, such as org/sparkproject/. */
    final String prefix;
    /** Class files of the copies, with the advice. */
    final Map<String, byte[]> copies = new LinkedHashMap<>();

    private RenamedNetty(String prefix) {
        this.prefix = prefix;
    }

    /**
     * Returns the copies for the Spark of these classes. Returns null if it has no renamed netty, or if the class that
     * refers to netty cannot be read: then the service is left out for what it lacks.
     */
    static RenamedNetty of(ClassFileLocator classes, TypePool pool) throws IOException {
        String prefix;
        try {
            prefix = prefix(pool.describe(ShuffleServicePoints.TRANSPORT));
        } catch (RuntimeException e) {
            return null;
        }
        if (prefix == null) {
            return null;
        }
        RenamedNetty netty = new RenamedNetty(prefix);
        for (String type : ShuffleServicePoints.WITH_NETTY) {
            netty.copy(type, classes);
        }
        netty.copy(ADVICE, classes);
        return netty;
    }

    private static String prefix(TypePool.Resolution transport) {
        if (!transport.isResolved()) {
            return null;
        }
        for (MethodDescription method : transport.resolve().getDeclaredMethods()) {
            if (!method.getName().equals(ShuffleServicePoints.PIPELINE)) {
                continue;
            }
            String descriptor = method.getDescriptor();
            int inside = descriptor.indexOf(NETTY_INSIDE);
            if (descriptor.startsWith("(L") && inside > 0 && descriptor.indexOf(';') > inside) {
                return descriptor.substring(2, inside + 1);
            }
        }
        return null;
    }

    private void copy(String type, ClassFileLocator classes) throws IOException {
        ClassWriter out = new ClassWriter(0);
        new ClassReader(classes.locate(type).resolve()).accept(new ClassRemapper(out, new Remapper(Opcodes.ASM9) {
            @Override
            public String map(String name) {
                if (name.startsWith(NETTY)) {
                    return prefix + name;
                }
                String dotted = name.replace('/', '.');
                return ShuffleServicePoints.WITH_NETTY.contains(dotted) || dotted.equals(ADVICE)
                        ? ShuffleServicePoints.copyOf(dotted).replace('.', '/') : name;
            }
        }), 0);
        copies.put(ShuffleServicePoints.copyOf(type), out.toByteArray());
    }

    /**
     * Defines the copies in the host's class loader, which must be that of our classes. It does not define the advice,
     * whose code is put into the host's classes. Returns null, or the reason for which the service cannot be governed.
     *
     * @param host null if only the class files are examined
     */
    String define(ClassLoader host) {
        Class<?> ours = ShuffleServicePoints.class;
        if (host == null) {
            return null;
        }
        if (ours.getClassLoader() != host) {
            return "the agent is in another class loader than the host";
        }
        Map<String, byte[]> defined = new LinkedHashMap<>(copies);
        defined.remove(ShuffleServicePoints.copyOf(ADVICE));
        try {
            ClassInjector into = ClassInjector.UsingLookup.isAvailable()
                    ? ClassInjector.UsingLookup.of(ShuffleServicePoints.lookup())
                    : new ClassInjector.UsingReflection(host, ours.getProtectionDomain()); // Java 8
            into.injectRaw(defined);
            return null;
        } catch (RuntimeException | LinkageError e) {
            return "the JVM refuses classes for a netty with the names " + prefix + NETTY + ": " + e;
        }
    }
}
