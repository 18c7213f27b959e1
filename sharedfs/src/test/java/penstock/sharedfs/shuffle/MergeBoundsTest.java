package penstock.sharedfs.shuffle;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Random;
import org.junit.jupiter.api.Test;

class MergeBoundsTest {
    @Test
    void memoryIsKept() {
        long seed = System.nanoTime();
        Random random = new Random(seed);
        for (int round = 0; round < 100_000; round++) {
            long memory = random.nextLong() >> random.nextInt(64);
            int outputs = random.nextInt(1 << random.nextInt(20));
            long others = random.nextInt(1 << random.nextInt(22));
            MergeBounds b = new MergeBounds(memory, outputs, others);
            String of = memory + " " + outputs + " " + others + ": " + b.inputs + " " + b.buffer + ", seed " + seed;
            assertTrue(b.inputs >= 10 && b.buffer >= MergeBounds.LEAST_BUFFER && b.buffer <= MergeBounds.MOST_BUFFER, of);
            assertTrue(b.inputs == 10 || b.inputs * (b.buffer + others) <= memory, of);
            assertTrue(b.inputs >= outputs || (b.inputs + 1) * (MergeBounds.LEAST_BUFFER + others) > memory, of);
        }
    }
}
