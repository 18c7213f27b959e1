package penstock.sharedfs.layout;

import java.io.File;
import java.io.IOException;
import java.nio.charset.Charset;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/**
 * Runs a parallel file system's own commands: without a shell, a few at a time, with a bound on time and output. What a
 * command writes to standard error is dropped; the error names the command, for the operator to repeat it.
 */
final class Tool {
    /** The most bytes of an answer. 100 files with 1,000 chunks in two copies each have 20 MB. */
    static final int MAX_OUTPUT = 32 << 20;
    /** How often a running command's time and output are compared with their bounds. */
    private static final long POLL_MILLIS = 10;
    /** How Java encodes the arguments of a command, and so the names of files. */
    private static final Charset FILE_NAMES = fileNames();
    /** The most commands at a time in this JVM, of all mounts. */
    private static final Semaphore RUNNING = new Semaphore(4);

    private final String folder;
    private final long timeoutNanos;

    /**
     * @param folder where the commands are; empty means those on PATH
     * @param timeoutMillis the most time that a command has, also for its turn
     */
    Tool(String folder, long timeoutMillis) {
        this.folder = folder;
        this.timeoutNanos = TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
    }

    /** What a command wrote, and its exit code. */
    static final class Answer {
        final int exit;
        final String text;

        Answer(int exit, String text) {
            this.exit = exit;
            this.text = text;
        }
    }

    /**
     * Runs the command with the arguments and waits for its end.
     *
     * @throws IOException if it cannot be started, takes too long, or answers too much
     */
    Answer run(String command, List<String> arguments) throws IOException {
        long deadline = System.nanoTime() + timeoutNanos;
        try {
            if (!RUNNING.tryAcquire(timeoutNanos, TimeUnit.NANOSECONDS)) {
                throw new IOException(command + " had no turn: too many commands hang");
            }
            try {
                return start(command, arguments, deadline);
            } finally {
                RUNNING.release();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted while " + command + " ran", e);
        }
    }

    private Answer start(String command, List<String> arguments, long deadline)
            throws IOException, InterruptedException {
        List<String> words = new ArrayList<>();
        words.add(folder.isEmpty() ? command : new File(folder, command).getPath());
        words.addAll(arguments);
        // A pipe stays open, and its reader waits, until all processes that the command has started have ended, and
        // the command itself, which may hang in the kernel. So the answer goes to a file.
        Path output = Files.createTempFile("penstock-sharedfs-", ".out");
        try {
            return run(command, words, output, deadline);
        } finally {
            Files.deleteIfExists(output);
        }
    }

    private Answer run(String command, List<String> words, Path output, long deadline)
            throws IOException, InterruptedException {
        ProcessBuilder builder = new ProcessBuilder(words);
        builder.environment().put("LC_ALL", "C.UTF-8");
        builder.redirectInput(new File("/dev/null"));
        builder.redirectOutput(output.toFile());
        builder.redirectError(new File("/dev/null"));
        Process process = builder.start();
        try {
            while (!process.waitFor(POLL_MILLIS, TimeUnit.MILLISECONDS)) {
                checkSize(command, output);
                if (System.nanoTime() - deadline >= 0) {
                    throw new IOException(command + " did not end within "
                        + TimeUnit.NANOSECONDS.toMillis(timeoutNanos) + " ms; repeat it to see why: " + shown(words));
                }
            }
            checkSize(command, output);
            return new Answer(process.exitValue(), new String(Files.readAllBytes(output), FILE_NAMES));
        } finally {
            process.destroyForcibly();
        }
    }

    private static void checkSize(String command, Path output) throws IOException {
        if (Files.size(output) > MAX_OUTPUT) {
            throw new IOException(command + " wrote more than " + MAX_OUTPUT + " bytes");
        }
    }

    /** Returns the error of a command that ended without a useful answer. */
    static IOException useless(String command, List<String> arguments, Answer answer) {
        List<String> words = new ArrayList<>();
        words.add(command);
        words.addAll(arguments);
        return new IOException(command + " ended with code " + answer.exit
            + " and without a valid answer; repeat it to see why: " + shown(words));
    }

    private static Charset fileNames() {
        try {
            return Charset.forName(System.getProperty("sun.jnu.encoding"));
        } catch (IllegalArgumentException e) {
            return Charset.defaultCharset(); // not a JDK that has this property
        }
    }

    private static String shown(List<String> words) {
        String line = String.join(" ", words);
        return line.length() <= 200 ? line : line.substring(0, 200) + " ...";
    }
}
