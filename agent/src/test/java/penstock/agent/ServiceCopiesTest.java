package penstock.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.List;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.jar.asm.ClassReader;
import net.bytebuddy.jar.asm.ClassWriter;
import net.bytebuddy.jar.asm.Opcodes;
import net.bytebuddy.jar.asm.commons.ClassRemapper;
import net.bytebuddy.jar.asm.commons.Remapper;
import net.bytebuddy.pool.TypePool;
import org.junit.jupiter.api.Test;
import penstock.core.Role;
import penstock.core.TestGates;

/** Tests the copies of our classes for Spark's shuffle service. */
class ServiceCopiesTest {
    private static final String PREFIX = "org.vendor.shaded.";

    /** Returns the class file with another name for netty. */
    static byte[] renamed(byte[] classFile, String prefix) {
        ClassWriter out = new ClassWriter(0);
        new ClassReader(classFile).accept(new ClassRemapper(out, new Remapper(Opcodes.ASM9) {
            @Override
            public String map(String name) {
                return name.startsWith("io/netty/") ? prefix.replace('.', '/') + name : name;
            }
        }), 0);
        return out.toByteArray();
    }

    /** Loads our classes and Spark's again, the latter with a netty that is renamed. */
    private static final class Vendor extends ClassLoader {
        Vendor() {
            super(ServiceCopiesTest.class.getClassLoader());
        }

        private byte[] classFile(String name) throws IOException {
            boolean netty = name.startsWith(PREFIX);
            try (InputStream in = getParent()
                    .getResourceAsStream((netty ? name.substring(PREFIX.length()) : name).replace('.', '/') + ".class")) {
                return in == null ? null : netty || name.startsWith("org.apache.spark.")
                        ? renamed(in.readAllBytes(), PREFIX) : in.readAllBytes();
            }
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                if (loaded == null && name.matches("(penstock|org\\.vendor|org\\.apache\\.spark)\\..*")) {
                    try {
                        byte[] file = classFile(name);
                        if (file == null) {
                            throw new ClassNotFoundException(name);
                        }
                        loaded = defineClass(name, file, 0, file.length);
                    } catch (IOException e) {
                        throw new ClassNotFoundException(name, e);
                    }
                }
                return loaded == null ? super.loadClass(name, resolve) : loaded;
            }
        }

        ClassFileLocator locator() {
            return new ClassFileLocator() {
                @Override
                public Resolution locate(String name) throws IOException {
                    byte[] file = classFile(name);
                    return file == null ? new Resolution.Illegal(name) : new Resolution.Explicit(file);
                }

                @Override
                public void close() { }
            };
        }
    }

    @Test
    void theCopiesWorkInANettyOfAnyName() throws Exception {
        Vendor vendor = new Vendor();
        ClassFileLocator classes = vendor.locator();
        Class<?> type = vendor.loadClass(ServiceCopies.class.getName());
        Method of = type.getDeclaredMethod("renamed", ClassFileLocator.class, TypePool.class);
        of.setAccessible(true);
        Object netty = of.invoke(null, classes, TypePool.Default.of(classes));
        assertNotNull(netty);
        Method define = type.getDeclaredMethod("define", ClassLoader.class);
        define.setAccessible(true);
        assertNull(define.invoke(netty, vendor));

        Constructor<?> handler = vendor.loadClass("penstock.spark.RenamedSending")
                .getDeclaredConstructor(vendor.loadClass("penstock.spark.RenamedServed"));
        handler.setAccessible(true);
        Object service = vendor.loadClass("penstock.spark.RenamedShuffleService").getMethod("all").invoke(null);
        Class<?> handlers = vendor.loadClass(PREFIX + "io.netty.channel.ChannelHandler");
        Object one = Array.newInstance(handlers, 1);
        Array.set(one, 0, handler.newInstance(service));
        Class<?> channels = vendor.loadClass(PREFIX + "io.netty.channel.embedded.EmbeddedChannel");
        Object channel = channels.getConstructor(one.getClass()).newInstance(one);
        // The handler examines a part of a file. A class that it cannot link would count as a failure.
        Class<?> buffers = vendor.loadClass("org.apache.spark.network.buffer.ManagedBuffer");
        Object part = vendor.loadClass("org.apache.spark.network.buffer.FileSegmentManagedBuffer").getConstructors()[0]
                .newInstance(null, new File("/nonexistent"), 0L, 1L);
        Class<?> ids = vendor.loadClass("org.apache.spark.network.protocol.StreamChunkId");
        Object message = vendor.loadClass("org.apache.spark.network.protocol.ChunkFetchSuccess")
                .getConstructor(ids, buffers)
                .newInstance(ids.getConstructor(long.class, int.class).newInstance(1L, 0), part);
        assertTrue((Boolean) channels.getMethod("writeOutbound", Object[].class)
                .invoke(channel, (Object) new Object[] {message}));
        assertSame(message, channels.getMethod("readOutbound").invoke(channel));
        assertEquals(0L, vendor.loadClass(TestGates.class.getName()).getMethod("failures").invoke(null));
    }

    @Test
    void aNettyUnderItsOwnNameNeedsNoCopies() throws Exception {
        ClassFileLocator classes = ClassFileLocator.ForClassLoader.of(ServiceCopiesTest.class.getClassLoader());
        assertNull(ServiceCopies.renamed(classes, TypePool.Default.of(classes)));
    }

    /** The JVM refuses to define the copies again: the agent goes on without the service, and says why. */
    @Test
    void aRefusalLeavesTheServiceOut() throws Exception {
        Vendor vendor = new Vendor();
        Class<?> weavers = vendor.loadClass(Weaver.class.getName());
        Class<?> roles = vendor.loadClass(Role.class.getName());
        Method of = weavers.getDeclaredMethod("of", ClassFileLocator.class, roles, ClassLoader.class);
        of.setAccessible(true);
        Method leftOut = weavers.getDeclaredMethod("leftOut");
        leftOut.setAccessible(true);
        Object role = roles.getField("NODEMANAGER").get(null);
        assertEquals(List.of(), leftOut.invoke(of.invoke(null, vendor.locator(), role, vendor)));
        List<?> second = (List<?>) leftOut.invoke(of.invoke(null, vendor.locator(), role, vendor));
        assertEquals(1, second.size());
        assertTrue(second.get(0).toString().startsWith("blocks sent by Spark's shuffle service: the JVM refuses"),
                second.toString());
    }
}
