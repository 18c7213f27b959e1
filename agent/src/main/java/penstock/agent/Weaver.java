package penstock.agent;

import static net.bytebuddy.matcher.ElementMatchers.named;

import java.io.IOException;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.security.ProtectionDomain;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import net.bytebuddy.ByteBuddy;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.description.method.MethodDescription;
import net.bytebuddy.description.modifier.FieldPersistence;
import net.bytebuddy.description.modifier.SyntheticState;
import net.bytebuddy.description.modifier.Visibility;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.dynamic.DynamicType;
import net.bytebuddy.dynamic.scaffold.TypeValidation;
import net.bytebuddy.implementation.bytecode.member.MethodInvocation;
import net.bytebuddy.pool.TypePool;
import penstock.core.Feature;
import penstock.core.Gates;
import penstock.core.Log;
import penstock.core.Point;
import penstock.core.Role;
import penstock.core.Stream;
import penstock.spark.ShuffleServicePoints;

/**
 * Instruments the host's classes with the advice, only at an allow-list of methods. The methods that belong together
 * are a feature: either all of them are instrumented or none.
 *
 * <p>Before any class of the host is loaded, {@link Symbols} looks up everything that each feature needs in the class
 * files. A feature that lacks something in this release of the host is left out; the others do not depend on it. If the
 * role's first feature lacks something, or every other one does, nothing is instrumented. All classes are instrumented
 * first, and only after that does the transformer pass them to the JVM. If another agent has changed a class first, the
 * changed class is checked and instrumented.
 *
 * <p>Only classes of the class loader in which {@link Symbols} looked are instrumented. A host may load other versions of
 * these classes in a class loader of their own. The advice would meet unknown classes there, so the feature counts as left
 * out. Spark's shuffle service is an exception: a NodeManager can load it in a separate class loader (aux-services with a
 * classpath). Each such class loader has its own weaver, with copies of our classes.
 */
public final class Weaver implements ClassFileTransformer {
    /** The agent does not support this version of its host. */
    static final class Missing extends Exception {
        private static final long serialVersionUID = 1;
        final transient List<String> symbols;

        Missing(Collection<String> symbols, Role role) {
            super("this " + host(role) + " lacks " + symbols.size()
                    + " of the methods and fields that the agent needs");
            this.symbols = new ArrayList<>(symbols);
        }
    }

    private final Role role;
    private final ClassFileLocator classes;
    /** The class loader whose classes are instrumented; null: all class loaders. */
    private final ClassLoader home;
    /** The role's features, of which some are left out. */
    private final List<Feature> all;
    /** Whether one feature is enough. Otherwise the role's first feature and another one are required. */
    private final boolean oneIsEnough;
    private final List<Feature> features = new ArrayList<>();
    /** What each feature that is left out lacks. */
    private final Map<String, Set<String>> lacking = new LinkedHashMap<>();
    private final Map<String, byte[]> originals = new HashMap<>();
    private final Map<String, byte[]> woven = new LinkedHashMap<>();

    /** A sentence for each feature of which a class cannot be instrumented or used in its class loader. */
    private final Map<String, String> elsewhere = new ConcurrentHashMap<>();

    /** The maximum number of separate class loaders whose shuffle service is instrumented. */
    private static final int MOST_SERVICES = 8;
    /** The weavers of shuffle services of Spark in class loaders of their own; null for one that is left out. */
    private final Map<ClassLoader, Weaver> services = new IdentityHashMap<>();
    /**
     * Defines classes in the class loaders of services. Null if the weaver does not instrument services in separate class
     * loaders.
     */
    private volatile Instrumentation jvm;

    private Weaver(ClassFileLocator classes, Role role, ClassLoader home, List<Feature> all, boolean oneIsEnough) {
        this.all = all;
        this.oneIsEnough = oneIsEnough;
        this.role = role;
        this.classes = classes;
        this.home = home;
    }

    /** Checks and instruments the classes that loader would load, without loading them. */
    static Weaver of(ClassLoader loader, Role role) throws Missing, IOException {
        return of(ClassFileLocator.ForClassLoader.of(loader), role, loader);
    }

    static Weaver of(ClassFileLocator classes, Role role) throws Missing, IOException {
        return of(classes, role, null);
    }

    private static Weaver of(ClassFileLocator classes, Role role, ClassLoader home) throws Missing, IOException {
        TypePool pool = TypePool.Default.of(classes);
        List<Feature> all = new ArrayList<>(Points.of(role));
        ServiceCopies copies = role == Role.NODEMANAGER ? ServiceCopies.renamed(classes, pool) : null;
        String refused = copies == null ? null : copies.define(home);
        if (copies != null && refused == null) {
            all.addAll(copies.features());
            classes = new ClassFileLocator.Compound(new ClassFileLocator.Simple(copies.copies), classes);
            pool = TypePool.Default.of(classes);
        }
        Weaver weaver = new Weaver(classes, role, home, all, false);
        weaver.choose(new Symbols(classes, pool));
        if (refused != null) {
            weaver.lacking.remove(ShuffleServicePoints.NAME); // it lacks only the copies
            weaver.elsewhere.put(ShuffleServicePoints.NAME, ShuffleServicePoints.NAME + ": " + refused);
        }
        while (!weaver.weaveAll(pool)) { }
        return weaver;
    }

    /** Returns false if a class could not be instrumented; its features are left out then, and all starts again. */
    private boolean weaveAll(TypePool pool) throws Missing, IOException {
        originals.clear();
        woven.clear();
        for (String type : types()) {
            originals.put(type, classes.locate(type).resolve());
            try {
                woven.put(type, weave(type, classes, pool));
            } catch (RuntimeException e) {
                leaveOut(type, e);
                return false;
            }
        }
        return true;
    }

    private void leaveOut(String type, RuntimeException why) throws Missing {
        for (Feature f : new ArrayList<>(features)) {
            for (Point p : f.points) {
                if (p.type.equals(type) && features.remove(f)) {
                    lacking.put(f.name, Collections.singleton(type + " in a form that can be instrumented: " + why));
                }
            }
        }
        requireSome();
    }

    /** Divides the role's features into those to instrument and those to leave out. */
    private void choose(Symbols symbols) throws Missing {
        Map<String, Feature> chosen = new LinkedHashMap<>();
        for (Feature f : all) {
            if (chosen.containsKey(f.name) || f.onlyWith != null && !symbols.exists(f.onlyWith)) {
                continue;
            }
            Set<String> missing = symbols.missing(f, null);
            if (missing.isEmpty()) {
                chosen.put(f.name, f);
                lacking.remove(f.name);
            } else if (!lacking.containsKey(f.name) || missing.size() < lacking.get(f.name).size()) {
                lacking.put(f.name, missing); // of several alternatives, the one that is the closest
            }
        }
        features.addAll(chosen.values());
        requireSome();
    }

    /**
     * Checks that enough features are left: with oneIsEnough any one, otherwise the role's first one and another one.
     */
    private void requireSome() throws Missing {
        if (oneIsEnough ? features.isEmpty() : features.size() < 2 || !features.get(0).name.equals(Points.of(role).get(0).name)) {
            throw new Missing(missing(), role);
        }
    }

    private static String host(Role role) {
        return role == Role.EXECUTOR || role == Role.WORKER ? "Spark" : "Hadoop";
    }

    Set<String> types() {
        Set<String> types = new TreeSet<>();
        for (Point p : points()) {
            types.add(p.type);
        }
        return types;
    }

    private List<Point> points() {
        List<Point> points = new ArrayList<>();
        for (Feature f : features) {
            points.addAll(f.points);
        }
        return points;
    }

    /** Returns the instrumented methods. Safe for any thread. */
    List<String> methods() {
        List<String> methods = new ArrayList<>();
        for (Point p : points()) {
            methods.add(p.type + "." + p.method + p.descriptor);
        }
        for (Weaver service : services()) {
            methods.addAll(service.methods());
        }
        return methods;
    }

    /** Returns a sentence for each feature that is left out, with the reason. Safe for any thread. */
    List<String> leftOut() {
        List<String> leftOut = new ArrayList<>();
        for (Map.Entry<String, Set<String>> f : lacking.entrySet()) {
            leftOut.add(f.getKey() + ": this " + host(role) + " lacks " + String.join(", ", f.getValue()));
        }
        leftOut.addAll(elsewhere.values());
        for (Weaver service : services()) {
            leftOut.addAll(service.leftOut());
        }
        return leftOut;
    }

    /** Returns the symbols that any feature lacks. */
    Set<String> missing() {
        Set<String> missing = new TreeSet<>();
        for (Set<String> symbols : lacking.values()) {
            missing.addAll(symbols);
        }
        return missing;
    }

    @Override
    public byte[] transform(ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain,
            byte[] original) {
        String type = name == null ? "" : name.replace('/', '.');
        if (jvm != null && loader != home && loader != null && ShuffleServicePoints.TYPES.contains(type)) {
            Weaver service = service(loader);
            if (service != null) {
                return service.transform(loader, name, redefined, domain, original);
            }
        }
        byte[] ready = woven.get(type);
        if (ready == null) {
            return null;
        }
        if (home != null && loader != home) {
            leaveOut(type, loader);
            return null;
        }
        try {
            if (Arrays.equals(original, originals.get(type))) {
                return ready;
            }
            ClassFileLocator changed =
                    new ClassFileLocator.Compound(ClassFileLocator.Simple.of(type, original), classes);
            TypePool pool = TypePool.Default.of(changed);
            Symbols symbols = new Symbols(changed, pool);
            Set<String> missing = new TreeSet<>();
            for (Feature f : features) {
                missing.addAll(symbols.missing(f, Collections.singleton(type)));
            }
            if (!missing.isEmpty()) {
                throw new Missing(missing, role);
            }
            return weave(type, changed, pool);
        } catch (Throwable t) {
            // Other classes of the same feature may be loaded. If only some of its methods were instrumented, I/O would
            // be attributed to wrong flows.
            Gates.switchOff();
            Log.say("switched itself off: " + type + " came in a form that cannot be instrumented: " + t);
            return null;
        }
    }

    /** Lets the weaver instrument shuffle services of Spark in class loaders of their own. */
    void instrumentServices(Instrumentation instrumentation) {
        jvm = instrumentation;
    }

    /** Returns the weaver for the service in the class loader; null if there is no service, or if it is left out. */
    private Weaver service(ClassLoader loader) {
        synchronized (services) {
            if (services.containsKey(loader)) {
                return services.get(loader);
            }
            if (services.size() == MOST_SERVICES) {
                String why = "Spark's shuffle service in a further class loader: at most " + MOST_SERVICES
                        + " are governed";
                if (elsewhere.putIfAbsent("services", why) == null) {
                    Log.say("NOT GOVERNED: " + why);
                }
                return null;
            }
            services.put(loader, null); // the code below may load a class, and so call this method again
            String own = "Spark's shuffle service in a class loader of its own (" + loader.getClass().getName() + ")";
            try {
                Weaver service = isolated(loader, "Isolated" + services.size(), jvm);
                services.put(loader, service);
                Log.say("instrumented " + service.methods().size() + " methods of " + own);
                return service;
            } catch (Throwable t) {
                String why = t instanceof Missing ? t.getMessage() + ": " + ((Missing) t).symbols : t.toString();
                elsewhere.put("service " + services.size(), own + ": " + why);
                Log.say("NOT GOVERNED: " + own + ": " + why);
                return null;
            }
        }
    }

    private static Weaver isolated(ClassLoader loader, String mark, Instrumentation jvm) throws Missing, IOException {
        ClassFileLocator classes = ClassFileLocator.ForClassLoader.of(loader);
        TypePool pool = TypePool.Default.of(classes);
        ServiceCopies copies = ServiceCopies.isolated(classes, pool, mark);
        if (copies == null) {
            throw new Missing(Collections.singleton(ShuffleServicePoints.TRANSPORT + " with a netty"), Role.NODEMANAGER);
        }
        classes = new ClassFileLocator.Compound(new ClassFileLocator.Simple(copies.copies), classes);
        pool = TypePool.Default.of(classes);
        Weaver weaver = new Weaver(classes, Role.NODEMANAGER, loader, copies.features(), true);
        weaver.choose(new Symbols(classes, pool));
        while (!weaver.weaveAll(pool)) { }
        copies.define(loader, jvm);
        return weaver;
    }

    private List<Weaver> services() {
        synchronized (services) {
            List<Weaver> all = new ArrayList<>(services.values());
            all.removeAll(Collections.singleton(null));
            return all;
        }
    }

    /** Logs, once for each feature, that classes of another class loader are not instrumented. */
    private void leaveOut(String type, ClassLoader loader) {
        for (Feature f : features) {
            for (Point p : f.points) {
                String why = f.name + ": " + type + " was loaded by another class loader, "
                        + (loader == null ? "the JVM's" : loader.getClass().getName())
                        + "; only the process's own class path is governed";
                if (p.type.equals(type) && elsewhere.putIfAbsent(f.name, why) == null) {
                    Log.say("NOT GOVERNED: " + why);
                }
            }
        }
    }

    private byte[] weave(String type, ClassFileLocator locator, TypePool pool) {
        DynamicType.Builder<?> builder = new ByteBuddy().with(TypeValidation.DISABLED)
                .redefine(pool.describe(type).resolve(), locator);
        if (Points.carriers(role).contains(type)) {
            builder = builder.defineField(Stream.FIELD, pool.describe(Points.carried(role)).resolve(),
                    Visibility.PRIVATE, FieldPersistence.TRANSIENT, SyntheticState.SYNTHETIC);
        }
        MethodDescription failed = pool.describe(Gates.class.getName()).resolve().getDeclaredMethods()
                .filter(named("failed")).getOnly();
        for (Point p : points()) {
            if (p.type.equals(type)) {
                builder = builder.visit(Advice.to(pool.describe(p.advice).resolve(), locator)
                        .withExceptionHandler(MethodInvocation.invoke(failed.asDefined()))
                        .on(method -> Symbols.is(method, p.method, p.descriptor)));
            }
        }
        return builder.make(pool).getBytes();
    }
}
