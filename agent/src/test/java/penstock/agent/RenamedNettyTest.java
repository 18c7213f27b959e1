package penstock.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Array;
import java.lang.reflect.Method;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.jar.asm.ClassReader;
import net.bytebuddy.jar.asm.ClassWriter;
import net.bytebuddy.jar.asm.Opcodes;
import net.bytebuddy.jar.asm.commons.ClassRemapper;
import net.bytebuddy.jar.asm.commons.Remapper;
import net.bytebuddy.pool.TypePool;
import org.junit.jupiter.api.Test;

/** Tests the copies of our classes for a Spark with a renamed netty. */
class RenamedNettyTest {
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
            super(RenamedNettyTest.class.getClassLoader());
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
        Class<?> type = vendor.loadClass(RenamedNetty.class.getName());
        Method of = type.getDeclaredMethod("of", ClassFileLocator.class, TypePool.class);
        of.setAccessible(true);
        Object netty = of.invoke(null, classes, TypePool.Default.of(classes));
        assertNotNull(netty);
        Method define = type.getDeclaredMethod("define", ClassLoader.class);
        define.setAccessible(true);
        assertEquals(true, define.invoke(netty, vendor));

        Class<?> service = vendor.loadClass("penstock.spark.RenamedShuffleService");
        Method handler = service.getDeclaredMethod("handler");
        handler.setAccessible(true);
        Class<?> handlers = vendor.loadClass(PREFIX + "io.netty.channel.ChannelHandler");
        Object one = Array.newInstance(handlers, 1);
        Array.set(one, 0, handler.invoke(null));
        Class<?> channels = vendor.loadClass(PREFIX + "io.netty.channel.embedded.EmbeddedChannel");
        Object channel = channels.getConstructor(one.getClass()).newInstance(one);
        Object message = new Object();
        assertTrue((Boolean) channels.getMethod("writeOutbound", Object[].class)
                .invoke(channel, (Object) new Object[] {message}));
        assertSame(message, channels.getMethod("readOutbound").invoke(channel));
    }

    @Test
    void aNettyUnderItsOwnNameNeedsNoCopies() throws Exception {
        ClassFileLocator classes = ClassFileLocator.ForClassLoader.of(RenamedNettyTest.class.getClassLoader());
        assertNull(RenamedNetty.of(classes, TypePool.Default.of(classes)));
    }

    /** The JVM refuses to define the copies again: the agent must go on without the service. */
    @Test
    void aRefusalLeavesTheServiceOut() throws Exception {
        Vendor vendor = new Vendor();
        Class<?> type = vendor.loadClass(RenamedNetty.class.getName());
        Method of = type.getDeclaredMethod("of", ClassFileLocator.class, TypePool.class);
        of.setAccessible(true);
        Object netty = of.invoke(null, vendor.locator(), TypePool.Default.of(vendor.locator()));
        Method define = type.getDeclaredMethod("define", ClassLoader.class);
        define.setAccessible(true);
        assertEquals(true, define.invoke(netty, vendor));
        assertEquals(false, define.invoke(netty, vendor));
    }
}
