package penstock.agent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.URI;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.stream.Stream;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.pool.TypePool;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import penstock.core.Feature;
import penstock.core.Point;
import penstock.core.Role;
import penstock.spark.GovernedShuffleDataIO;
import penstock.spark.NamedDistributedFileSystem;
import penstock.task.GovernedLocalFileSystem;

/**
 * Weaves the classes of further releases of Hadoop and Spark, each from a folder of jars that Maven has copied. All
 * features must be found there, and the JVM must accept the woven classes. None of these releases is started.
 */
class VersionsTest {
    private static final Path FOLDERS = Path.of("target", "versions");

    /** Returns the releases whose folder's name begins so. */
    private static List<Path> releases(String prefix) throws IOException {
        try (Stream<Path> folders = Files.list(FOLDERS)) {
            return folders.filter(f -> f.getFileName().toString().startsWith(prefix)).sorted().toList();
        }
    }

    static List<Path> hadoops() throws IOException {
        return releases("hadoop-");
    }

    static List<Path> sparks() throws IOException {
        return releases("spark-");
    }

    /**
     * Loads classes from the jars of one release, and our classes again, so that they refer to these. Libraries that
     * the jars lack are those of the test, but never the packages of instrumented classes.
     */
    private static final class Release extends URLClassLoader {
        private Weaver weaver;

        private Release(URL[] jars) {
            super(jars, VersionsTest.class.getClassLoader());
        }

        static Release of(Path folder) throws IOException {
            List<URL> jars = new ArrayList<>();
            try (Stream<Path> files = Files.list(folder)) {
                for (Path jar : files.sorted().toList()) {
                    jars.add(jar.toUri().toURL());
                }
            }
            return new Release(jars.toArray(new URL[0]));
        }

        /** A folder with any of Hadoop's jars has all of Hadoop's file systems. */
        private boolean isWoven(String name) {
            if (name.startsWith("org.apache.hadoop.fs.")) {
                return findResource("org/apache/hadoop/fs/Path.class") != null;
            }
            return name.startsWith("org.apache.hadoop.hdfs.") || name.startsWith("org.apache.hadoop.mapred.Shuffle")
                    || name.startsWith("org.apache.hadoop.mapred.Fadvised")
                    || name.startsWith("org.apache.spark.") || name.startsWith("scala.");
        }

        @Override
        public URL getResource(String name) {
            URL found = findResource(name);
            return found != null || isWoven(name.replace('/', '.')) ? found : super.getResource(name);
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            String file = name.replace('.', '/');
            if (!isWoven(name) && !name.startsWith("penstock.") && findResource(file + ".class") == null) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                if (loaded != null) {
                    return loaded;
                }
                try (InputStream in = getResourceAsStream(file + ".class")) {
                    if (in == null) {
                        throw new ClassNotFoundException(name);
                    }
                    byte[] code = in.readAllBytes();
                    byte[] woven = weaver == null ? null : weaver.transform(this, file, null, null, code);
                    code = woven == null ? code : woven;
                    return defineClass(name, code, 0, code.length);
                } catch (IOException e) {
                    throw new ClassNotFoundException(name, e);
                }
            }
        }

        /** Weaves all features of the role, and lets the JVM verify the woven classes. */
        void weave(Role role) throws Exception {
            try {
                weaver = Weaver.of(this, role);
            } catch (Weaver.Missing e) {
                throw new AssertionError(e.symbols.toString(), e);
            }
            assertEquals(List.of(), weaver.leftOut());
            for (String type : weaver.types()) {
                try {
                    assertSame(this, Class.forName(type, true, this).getClassLoader());
                } catch (ExceptionInInitializerError | NoClassDefFoundError e) {
                    // Verified before, and not initialised because the folder lacks one of the release's libraries.
                    assertTrue(initialises(e) || initialises(e.getCause()), () -> type + ": " + e);
                }
            }
        }

        private static boolean initialises(Throwable t) {
            return t != null && Stream.of(t.getStackTrace()).anyMatch(f -> f.getMethodName().equals("<clinit>"));
        }

        /** Returns what our class needs that this release lacks. */
        Set<String> missing(Class<?> ours) {
            ClassFileLocator classes = ClassFileLocator.ForClassLoader.of(this);
            Feature plugin = new Feature("plug-in",
                    new Point("java.lang.Object", "toString", "()Ljava/lang/String;", ours));
            return new Symbols(classes, TypePool.Default.of(classes)).missing(plugin, null);
        }
    }

    @Test
    void thereAreReleasesOfEachKind() throws IOException {
        assertTrue(hadoops().contains(FOLDERS.resolve("hadoop-3.1.4")), hadoops().toString());
        assertTrue(sparks().contains(FOLDERS.resolve("spark-3.5.5_2.12")), sparks().toString());
    }

    @ParameterizedTest
    @MethodSource("hadoops")
    void aDataNodeIsWovenWhole(Path folder) throws Exception {
        try (Release release = Release.of(folder)) {
            release.weave(Role.DATANODE);
            assertEquals(Set.of(), release.missing(NamedDistributedFileSystem.class));
            // Constructing it links its classes. If one lacked something, it would have Hadoop's raw file system.
            Object plugin = Class.forName(GovernedLocalFileSystem.class.getName(), true, release).getConstructor()
                    .newInstance();
            assertEquals("GovernedRaw",
                    plugin.getClass().getMethod("getRaw").invoke(plugin).getClass().getSimpleName());
        }
    }

    /** A task's files pass the gates, here without a daemon, and come back as they were written. */
    @ParameterizedTest
    @MethodSource("hadoops")
    void aTaskWritesAndReads(Path folder, @TempDir Path local) throws Exception {
        try (Release release = Release.of(folder)) {
            Class<?> rawType = Class.forName("penstock.task.GovernedRaw", true, release);
            Class<?> confType = Class.forName("org.apache.hadoop.conf.Configuration", true, release);
            Class<?> pathType = Class.forName("org.apache.hadoop.fs.Path", true, release);
            Constructor<?> make = rawType.getDeclaredConstructor(Map.class);
            make.setAccessible(true);
            Object raw = make.newInstance(Map.of("CONTAINER_ID", "container_1700000000000_0042_01_000002",
                    "LOCAL_DIRS", local.toString()));
            Object conf = confType.getConstructor(boolean.class).newInstance(false);
            confType.getMethod("set", String.class, String.class).invoke(conf, "penstock.socket", local + "/none.sock");
            Method initialize = rawType.getMethod("initialize", URI.class, confType);
            initialize.setAccessible(true);
            initialize.invoke(raw, URI.create("file:///"), conf);
            Object file = pathType.getConstructor(String.class).newInstance(local + "/spill");
            byte[] data = new byte[300_000];
            new Random(7).nextBytes(data);
            Method create = rawType.getMethod("create", pathType);
            create.setAccessible(true);
            try (OutputStream out = (OutputStream) create.invoke(raw, file)) {
                out.write(data);
            }
            Method open = rawType.getMethod("open", pathType);
            open.setAccessible(true);
            try (InputStream in = (InputStream) open.invoke(raw, file)) {
                assertArrayEquals(data, in.readAllBytes());
            }
            Field container = rawType.getDeclaredField("container");
            container.setAccessible(true);
            assertNotNull(container.get(raw), "not governed");
        }
    }

    @ParameterizedTest
    @MethodSource("hadoops")
    void aNodeManagerIsWovenWhole(Path folder) throws Exception {
        try (Release release = Release.of(folder)) {
            release.weave(Role.NODEMANAGER);
        }
    }

    @Test
    void aNodeManagerWithSparksShuffleServiceIsWovenWhole() throws Exception {
        try (Release release = Release.of(FOLDERS.resolve("nodemanager-spark-3.5.5"))) {
            release.weave(Role.NODEMANAGER);
            assertEquals(4, release.weaver.methods().size(), release.weaver.methods().toString());
        }
    }

    /** In Spark's distribution, the service's netty has other names. */
    @Test
    void aShuffleServiceWithARenamedNettyIsWovenWhole() throws Exception {
        try (Release release = Release.of(FOLDERS.resolve("nodemanager-spark-3.5.5"))) {
            ClassFileLocator classes = ClassFileLocator.ForClassLoader.of(release);
            Weaver weaver = Weaver.of(new ClassFileLocator() {
                @Override
                public Resolution locate(String name) throws IOException {
                    Resolution found = classes.locate(name.replaceFirst("^org\\.sparkproject\\.", ""));
                    return found.isResolved() && name.matches("org\\.(sparkproject|apache\\.spark)\\..*")
                            ? new Resolution.Explicit(ServiceCopiesTest.renamed(found.resolve(), "org.sparkproject.")) : found;
                }

                @Override
                public void close() { }
            }, Role.NODEMANAGER);
            assertEquals(List.of(), weaver.leftOut());
            assertEquals(4, weaver.methods().size(), weaver.methods().toString());
        }
    }

    /** A service of which parts are missing is left out, and the rest is woven, loudly. */
    @Test
    void aShuffleServiceWithoutItsNettyIsLeftOut() throws Exception {
        try (Release release = Release.of(FOLDERS.resolve("nodemanager-spark-3.5.5"))) {
            ClassFileLocator classes = ClassFileLocator.ForClassLoader.of(release);
            String transport = "org.apache.spark.network.TransportContext";
            byte[] renamed = ServiceCopiesTest.renamed(classes.locate(transport).resolve(),
                    "org.sparkproject.");
            Weaver weaver = Weaver.of(new ClassFileLocator.Compound(
                    ClassFileLocator.Simple.of(transport, renamed), classes), Role.NODEMANAGER);
            assertEquals(2, weaver.methods().size());
            assertEquals(1, weaver.leftOut().size());
            assertTrue(weaver.leftOut().get(0).startsWith("blocks sent by Spark's shuffle service: this Hadoop lacks "
                    + transport + ".initializePipeline("), weaver.leftOut().get(0));
        }
    }

    @ParameterizedTest
    @MethodSource("sparks")
    void anExecutorIsWovenWhole(Path folder) throws Exception {
        try (Release release = Release.of(folder)) {
            release.weave(Role.EXECUTOR);
            assertEquals(Set.of(), release.missing(GovernedShuffleDataIO.class));
        }
    }

    /** With its shuffle service. */
    @ParameterizedTest
    @MethodSource("sparks")
    void aWorkerIsWovenWhole(Path folder) throws Exception {
        try (Release release = Release.of(folder)) {
            release.weave(Role.WORKER);
        }
    }
}
