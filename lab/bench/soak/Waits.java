import java.lang.instrument.Instrumentation;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Loaded into every task of a campaign: when its JVM ends, it writes the counters of waits without
 * a daemon of Penstock's client in the task to a file: "count longest", the latter in nanoseconds.
 * A task has no web address to query.
 */
public final class Waits {
    private Waits() { }

    public static void premain(String folder, Instrumentation instrumentation) {
        String task = System.getenv("CONTAINER_ID");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                Files.write(Path.of(folder, task), counted().getBytes());
            } catch (Exception e) {
                System.err.println("waits without a daemon are not told: " + e);
            }
        }));
    }

    private static String counted() throws ReflectiveOperationException {
        Class<?> gates = Class.forName("penstock.core.Gates", true, ClassLoader.getSystemClassLoader());
        Field field = gates.getDeclaredField("ORPHANS");
        field.setAccessible(true);
        Object orphans = field.get(null);
        return number(orphans, "count") + " " + number(orphans, "longestNanos");
    }

    private static long number(Object orphans, String name) throws ReflectiveOperationException {
        Method method = orphans.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        return (Long) method.invoke(orphans);
    }
}
