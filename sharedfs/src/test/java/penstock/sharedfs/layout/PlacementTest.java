package penstock.sharedfs.layout;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import penstock.sharedfs.layout.Placement.Run;

class PlacementTest {
    private static List<List<String>> columns(String... servers) {
        List<List<String>> columns = new ArrayList<>();
        for (String each : servers) {
            columns.add(each.isEmpty() ? Collections.emptyList() : Arrays.asList(each.split(",")));
        }
        return columns;
    }

    @Test
    void aServerNeedsMoreThanHalf() {
        Placement two = new Placement(List.of(new Run(0, Long.MAX_VALUE, 10, columns("a", "b"))));
        assertEquals(List.of("a"), two.majority(0, 10));
        assertEquals(List.of(), two.majority(0, 20));
        assertEquals(List.of("b"), two.majority(9, 21 - 1));
        assertEquals(List.of("a"), two.majority(20, 31));
        assertEquals(List.of(), two.majority(1L << 60, (1L << 60) + 10_000));
    }

    @Test
    void replicasAndMirrorsAreAllNamed() {
        Placement p = new Placement(List.of(Run.whole(0, 100, List.of("b", "a")), Run.whole(0, 60, List.of("a", "c"))));
        assertEquals(List.of("a", "b", "c"), p.majority(0, 100));
        assertEquals(List.of("a", "b"), p.majority(40, 100));
        assertEquals(List.of(), p.majority(100, 200));
    }

    @Test
    void nothingIsKnownOfGaps() {
        Placement p = new Placement(List.of(new Run(0, 30, 10, columns("a", "", "c"))));
        assertEquals(List.of(), p.majority(10, 20));
        assertEquals(List.of("c"), p.majority(20, 30));
        assertEquals(List.of(), p.majority(20, 40));
        assertEquals(List.of(), Placement.NONE.majority(0, 1));
    }

    @Test
    void impossibleRunsAreErrors() {
        assertThrows(IllegalArgumentException.class, () -> new Run(0, 10, 0, columns("a", "b")));
        assertThrows(IllegalArgumentException.class, () -> new Run(0, 10, Long.MAX_VALUE, columns("a", "b")));
        assertThrows(IllegalArgumentException.class, () -> new Run(-1, 10, 5, columns("a")));
        assertThrows(IllegalArgumentException.class, () -> new Run(11, 10, 5, columns("a")));
        assertThrows(IllegalArgumentException.class, () -> new Run(0, 10, 5, columns()));
    }

    /** Compares the rule with counting byte by byte. */
    @Test
    void theRuleCountsAsAListOfBytesDoes() {
        long seed = Long.getLong("penstock.seed", System.nanoTime());
        Random random = new Random(seed);
        for (int round = 0; round < 2000; round++) {
            int n = 1 + random.nextInt(5);
            String[] servers = new String[n];
            for (int i = 0; i < n; i++) {
                servers[i] = String.valueOf((char) ('a' + random.nextInt(3)));
            }
            long unit = 1 + random.nextInt(20);
            int start = random.nextInt(50);
            int end = start + random.nextInt(200);
            int from = random.nextInt(200);
            int to = from + 1 + random.nextInt(100);
            int[] bytes = new int[3];
            for (int at = Math.max(from, start); at < Math.min(to, end); at++) {
                bytes[servers[(int) (at / unit % n)].charAt(0) - 'a']++;
            }
            List<String> expected = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                if (bytes[i] > (to - from) / 2) {
                    expected.add(String.valueOf((char) ('a' + i)));
                }
            }
            Placement placement = new Placement(List.of(new Run(start, end, unit, columns(servers))));
            assertEquals(expected, placement.majority(from, to), "seed " + seed + ", round " + round);
        }
    }
}
