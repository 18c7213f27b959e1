package penstock.sharedfs.layout;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import java.util.function.Consumer;

/** Answers of tools, as they are and damaged. */
final class Answers {
    /** Damaged versions of each answer. */
    private static final int ROUNDS = 3000;

    private Answers() { }

    static String of(String name) {
        try (InputStream in = Answers.class.getResourceAsStream("/answers/" + name)) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /**
     * Calls the parser with damaged versions of the answer. The parser must return, or throw what reads reports.
     * The system property penstock.seed repeats a run.
     */
    static void damaged(String name, Consumer<String> reads) {
        long seed = Long.getLong("penstock.seed", System.nanoTime());
        Random random = new Random(seed);
        String good = of(name);
        for (int round = 0; round < ROUNDS; round++) {
            StringBuilder text = new StringBuilder(good);
            for (int change = random.nextInt(8); change >= 0 && text.length() > 0; change--) {
                int at = random.nextInt(text.length());
                int end = Math.min(text.length(), at + 1 + random.nextInt(20));
                switch (random.nextInt(6)) {
                    case 0 -> text.delete(at, end);
                    case 1 -> text.insert(at, text.substring(at, end));
                    case 2 -> text.insert(at, good, at % good.length(), good.length());
                    case 3 -> text.setCharAt(at, (char) random.nextInt(128));
                    case 4 -> text.setLength(at);
                    default -> text.insert(at,
                        random.nextBoolean() ? Long.toString(random.nextLong()) : "\\\"<(>)\n\t:");
                }
            }
            try {
                reads.accept(text.toString());
            } catch (RuntimeException | StackOverflowError e) {
                throw new AssertionError(name + ", seed " + seed + ", round " + round + ":\n" + text, e);
            }
        }
    }
}
