package penstock.spark;

import java.io.File;
import java.lang.reflect.Field;
import java.nio.channels.FileChannel;

/** Finds the path of an open file, which Java keeps in a private field. */
final class Paths {
    private static final Field PATH = field();

    private Paths() { }

    private static Field field() {
        try {
            Field path = Class.forName("sun.nio.ch.FileChannelImpl").getDeclaredField("path");
            path.setAccessible(true); // Spark opens the package to itself in each of its JVMs
            return path;
        } catch (ReflectiveOperationException | RuntimeException e) {
            return null;
        }
    }

    /** Returns null if the path cannot be found. */
    static File of(FileChannel channel) {
        try {
            Object path = PATH == null || !PATH.getDeclaringClass().isInstance(channel) ? null : PATH.get(channel);
            return path == null ? null : new File((String) path);
        } catch (IllegalAccessException e) {
            return null;
        }
    }
}
