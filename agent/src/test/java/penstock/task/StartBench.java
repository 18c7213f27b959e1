package penstock.task;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import penstock.core.TestDaemon;

/**
 * Measures the cost of the plug-in in a task's JVM. It repeatedly starts a process with the first file operations of a
 * task: without the plug-in, with it, and with it and a daemon, in an order that changes from round to round.
 * Differences are computed within a round, since the machine's speed changes by more than the difference. CPU seconds
 * are the kernel's count for the whole process; they are the relevant figure if the machine has other work.
 *
 * <p>Arguments: the agent's jar, Hadoop's class path, and the number of rounds.
 */
public final class StartBench {
    private static final String CONTAINER = "container_e01_1700000000000_0042_01_000002";
    private static final int SIZE = 64 << 10;
    private static final String TIME = "TIMEFORMAT='seconds %3R %3U %3S'; time \"$@\"";

    private StartBench() { }

    /** The measured variants; each name is a line of the output. */
    private enum Variant {
        WITHOUT("without the plug-in"), ALONE("with it, no daemon"), BESIDE("with it and a daemon");

        final String title;

        Variant(String title) {
            this.title = title;
        }
    }

    /** The process: takes a file, a socket and the file system's class, if it is not Hadoop's. */
    public static final class Task {
        private Task() { }

        public static void main(String[] args) throws IOException {
            Configuration conf = new Configuration();
            conf.set("penstock.socket", args[1]);
            if (args.length > 2) {
                conf.set("fs.file.impl", args[2]);
            }
            long configured = System.nanoTime();
            FileSystem local = FileSystem.getLocal(conf).getRaw();
            try (FSDataOutputStream out = local.create(new org.apache.hadoop.fs.Path(args[0]))) {
                out.write(new byte[SIZE]);
            }
            long done = System.nanoTime();
            System.out.printf("milliseconds %.3f %.3f %s%n", (done - configured) / 1e6,
                    ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()) / 1e3, local.getClass().getSimpleName());
        }
    }

    /** Milliseconds of one process: in total, in its main thread with the files, and from then to its end. */
    private record Run(double cpu, double wall, double files, double end) {
        double[] columns() {
            return new double[] {cpu, wall, files, end};
        }
    }

    public static void main(String[] args) throws Exception {
        if (args.length != 3) {
            throw new IllegalArgumentException("give the agent's jar, Hadoop's class path and a number of rounds");
        }
        int rounds = Integer.parseInt(args[2]);
        Path directory = Files.createTempDirectory("penstock").toRealPath();
        List<List<Run>> runs = List.of(new ArrayList<>(), new ArrayList<>(), new ArrayList<>());
        try (TestDaemon daemon = new TestDaemon(directory.resolve("s"), TestDaemon.ENFORCE)) {
            daemon.generous = true;
            List<Variant> order = new ArrayList<>(Arrays.asList(Variant.values()));
            Random random = new Random(1);
            for (int round = -1; round < rounds; round++) { // one to warm the page cache
                Collections.shuffle(order, random);
                for (Variant v : order) {
                    Run run = run(directory, args[0], args[1], v);
                    if (round >= 0) {
                        runs.get(v.ordinal()).add(run);
                    }
                }
            }
        } finally {
            try (var files = Files.walk(directory)) {
                for (Path f : files.sorted(Collections.reverseOrder()).toList()) {
                    Files.delete(f);
                }
            }
        }
        print(runs);
    }

    private static Run run(Path directory, String jar, String hadoop, Variant v) throws Exception {
        Path classes = directory.resolve("classes");
        if (!Files.exists(classes)) {
            // Only the task is in this folder; all classes of Penstock must come from the jar.
            Path to = classes.resolve(Task.class.getName().replace('.', '/') + ".class");
            Files.createDirectories(to.getParent());
            Path built = Path.of(Task.class.getProtectionDomain().getCodeSource().getLocation().toURI());
            Files.copy(built.resolve(classes.relativize(to)), to);
            Files.writeString(classes.resolve("log4j.properties"), "log4j.rootLogger=INFO,err\n"
                    + "log4j.appender.err=org.apache.log4j.ConsoleAppender\nlog4j.appender.err.target=System.err\n"
                    + "log4j.appender.err.layout=org.apache.log4j.PatternLayout\n");
        }
        String path = classes + ":" + hadoop + (v == Variant.WITHOUT ? "" : ":" + jar); // last, as it is installed
        List<String> command = new ArrayList<>(List.of("bash", "-c", TIME, "bash",
                Path.of(System.getProperty("java.home"), "bin/java").toString(), "-Xmx512m", "-cp", path,
                Task.class.getName(), directory.resolve("file").toString(),
                directory.resolve(v == Variant.BESIDE ? "s" : "nobody").toString()));
        if (v != Variant.WITHOUT) {
            command.add("penstock.task.GovernedLocalFileSystem");
        }
        Path log = directory.resolve("log");
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log.toFile());
        builder.environment().put("CONTAINER_ID", CONTAINER);
        builder.environment().put("LOCAL_DIRS", directory.toString());
        Process process = builder.start();
        boolean ended = process.waitFor(60, TimeUnit.SECONDS);
        double end = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()) / 1e3;
        if (!ended) {
            process.descendants().forEach(ProcessHandle::destroyForcibly);
        }
        String said = Files.readString(log, StandardCharsets.UTF_8);
        double[] milliseconds = numbers(said, "milliseconds ");
        double[] seconds = numbers(said, "seconds ");
        String expected = v == Variant.WITHOUT ? "RawLocalFileSystem" : "GovernedRaw";
        if (!ended || process.exitValue() != 0 || !said.contains(" " + expected + "\n") || seconds.length != 3) {
            throw new IOException("the task's JVM failed or did not use " + expected + ": " + said);
        }
        return new Run((seconds[1] + seconds[2]) * 1e3, seconds[0] * 1e3, milliseconds[0], end - milliseconds[1]);
    }

    /** Returns the numbers of the line that begins with the given word. */
    private static double[] numbers(String said, String word) {
        return said.lines().filter(l -> l.startsWith(word)).flatMap(l -> Arrays.stream(l.split(" ")).skip(1))
                .filter(n -> n.matches("[0-9.]+")).mapToDouble(Double::parseDouble).toArray();
    }

    private static void print(List<List<Run>> runs) {
        List<Run> without = runs.get(Variant.WITHOUT.ordinal());
        System.out.printf("%-24s", without.size() + " rounds, ms");
        for (String column : List.of("CPU", "wall", "with its files", "to its end")) {
            System.out.printf(" %21s", column);
        }
        System.out.println();
        for (Variant v : Variant.values()) {
            line(v.title, runs.get(v.ordinal()), null);
        }
        for (Variant v : List.of(Variant.ALONE, Variant.BESIDE)) {
            line("adds, " + v.title.substring(5), runs.get(v.ordinal()), without);
        }
    }

    /** Prints medians and quartiles: of the values, or of the differences if there is a variant to compare with. */
    private static void line(String title, List<Run> runs, List<Run> to) {
        StringBuilder line = new StringBuilder(String.format("%-24s", title));
        for (int column = 0; column < 4; column++) {
            double[] all = new double[runs.size()];
            for (int i = 0; i < all.length; i++) {
                all[i] = runs.get(i).columns()[column] - (to == null ? 0 : to.get(i).columns()[column]);
            }
            Arrays.sort(all);
            line.append(String.format(Locale.ROOT, " %21s", String.format(Locale.ROOT, "%.0f (%.0f to %.0f)",
                    quantile(all, 0.5), quantile(all, 0.25), quantile(all, 0.75))));
        }
        System.out.println(line);
    }

    private static double quantile(double[] sorted, double q) {
        double at = q * (sorted.length - 1);
        int below = (int) at;
        int above = Math.min(below + 1, sorted.length - 1);
        return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
    }
}
