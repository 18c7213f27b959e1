package penstock.agent;

import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.util.LinkedHashMap;
import java.util.List;
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
import penstock.core.Feature;
import penstock.spark.ShuffleServicePoints;

/**
 * Copies of our classes for Spark's shuffle service, under other names. There are two reasons for copies. Spark's distribution moves
 * netty's classes to org.sparkproject.io.netty in the service's jar, so that they do not conflict with the host's netty. And a
 * NodeManager may load the service in a separate class loader. Our classes are in its parent, and cannot refer to classes of that
 * loader. The copies are made from our class files: only names change.
 */
final class ServiceCopies {
    private static final String NETTY = "io/netty/";
    /** Part of the names of all renamed classes of netty. */
    static final String NETTY_INSIDE = "/" + NETTY;
    private static final String ADVICE = "penstock.spark.ShuffleServiceAdvice$Pipeline";

    /** The prefix of the names of netty's classes, such as org/sparkproject/; may be empty. */
    private final String prefix;
    /** The beginning of the copies' simple names. */
    private final String mark;
    /** Class files of the copies, with the advice. */
    final Map<String, byte[]> copies = new LinkedHashMap<>();

    private ServiceCopies(String prefix, String mark, ClassFileLocator classes) throws IOException {
        this.prefix = prefix;
        this.mark = mark;
        for (String type : ShuffleServicePoints.WITH_NETTY) {
            copy(type, classes);
        }
        copy(ADVICE, classes);
    }

    /**
     * Returns the copies for the Spark of the host's class path. Returns null if it has no renamed netty, or if the class
     * that refers to netty cannot be read; in the latter case, {@link Symbols} finds what is missing.
     */
    static ServiceCopies renamed(ClassFileLocator classes, TypePool pool) throws IOException {
        String prefix = prefix(pool);
        return prefix == null || prefix.isEmpty() ? null : new ServiceCopies(prefix, "Renamed", classes);
    }

    /**
     * Returns the copies for a Spark in a class loader of its own. Returns null if the class that refers to netty cannot be
     * read.
     *
     * @param mark the beginning of the copies' simple names, different for each class loader
     */
    static ServiceCopies isolated(ClassFileLocator classes, TypePool pool, String mark) throws IOException {
        String prefix = prefix(pool);
        return prefix == null ? null : new ServiceCopies(prefix, mark, classes);
    }

    /** Returns the features whose advice uses the copies. */
    List<Feature> features() {
        return ShuffleServicePoints.copied(prefix, mark);
    }

    private static String prefix(TypePool pool) {
        TypePool.Resolution transport;
        try {
            transport = pool.describe(ShuffleServicePoints.TRANSPORT);
            return transport.isResolved() ? prefixIn(transport) : null;
        } catch (RuntimeException e) {
            return null;
        }
    }

    private static String prefixIn(TypePool.Resolution transport) {
        for (MethodDescription method : transport.resolve().getDeclaredMethods()) {
            if (!method.getName().equals(ShuffleServicePoints.PIPELINE)) {
                continue;
            }
            String descriptor = method.getDescriptor();
            if (descriptor.startsWith("(L" + NETTY)) {
                return "";
            }
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
                        ? ShuffleServicePoints.copyOf(dotted, mark).replace('.', '/') : name;
            }
        }), 0);
        copies.put(ShuffleServicePoints.copyOf(type, mark), out.toByteArray());
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
        try {
            define(ClassInjector.UsingLookup.isAvailable() ? ClassInjector.UsingLookup.of(ShuffleServicePoints.lookup())
                    : new ClassInjector.UsingReflection(host, ours.getProtectionDomain())); // Java 8
            return null;
        } catch (RuntimeException | LinkageError e) {
            return "the JVM refuses classes for a netty with the names " + prefix + NETTY + ": " + e;
        }
    }

    /**
     * Defines the copies in the class loader of a service.
     *
     * @throws RuntimeException if the JVM refuses the classes
     * @throws LinkageError if the JVM refuses one of them
     */
    void define(ClassLoader service, Instrumentation jvm) {
        define(ClassInjector.UsingUnsafe.Factory.resolve(jvm)
                .make(service, ShuffleServicePoints.class.getProtectionDomain()));
    }

    private void define(ClassInjector into) {
        Map<String, byte[]> defined = new LinkedHashMap<>(copies);
        defined.remove(ShuffleServicePoints.copyOf(ADVICE, mark));
        into.injectRaw(defined);
    }
}
