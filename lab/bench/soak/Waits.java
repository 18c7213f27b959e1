import java.lang.instrument.Instrumentation;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * A Java agent that is loaded into every task of a campaign. When the task's JVM ends, it writes a file with two
 * numbers: how often Penstock's client in the task waited without a daemon, and the longest such wait in nanoseconds.
 * A file is needed because a task has no web address at which its counters can be read.
 */
public final class Waits {
    private Waits() { }

    public static void premain(String folder, Instrumentation instrumentation) {
        String task = System.getenv("CONTAINER_ID");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                Files.write(Path.of(folder, task), counted().getBytes());
            } catch (Exception e) {
                System.err.println("cannot write the waits without a daemon: " + e);
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
