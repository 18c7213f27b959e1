package penstock.core;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class OrphansTest {
    private final Orphans orphans = new Orphans();

    private void check(long count, long longest, long latest) {
        assertEquals(count, orphans.count());
        assertEquals(longest, orphans.longestNanos());
        assertEquals(latest, orphans.latestNanos());
    }

    @Test
    void aWaitCountsFromTheDaemonsLastSignOfLife() {
        check(0, 0, 0);
        orphans.ended(100, 1_500, 500); // the daemon was still alive when the wait began
        check(1, 1_000, 1_000);
        orphans.ended(900, 1_600, 500); // the wait began after the daemon was gone
        check(2, 1_000, 1_000);
        orphans.ended(400, 1_700, 500);
        check(3, 1_200, 1_200);
    }

    @Test
    void eachAbsenceHasItsOwnLongestWait() {
        orphans.ended(0, 1_000, 0); // nanoTime may be 0, or negative
        orphans.ended(-5_000, 2_300, 2_000);
        check(2, 1_000, 300);
        orphans.ended(-5_000, -4_000, -4_200);
        check(3, 1_000, 200);
    }
}
