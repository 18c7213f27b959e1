package penstock.sharedfs.layout;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import penstock.sharedfs.layout.Placement.Run;

class LocatorTest {
    private static final long SECOND = TimeUnit.SECONDS.toNanos(1);

    /** A file system that knows each file, on the server "of-NAME". */
    private static final class Known implements Layout {
        final List<List<String>> asked = new ArrayList<>();
        boolean fails;
        boolean silent;

        @Override
        public Map<String, Placement> ask(List<String> files) throws IOException {
            asked.add(files);
            if (fails) {
                throw new IOException("it is gone");
            }
            Map<String, Placement> answers = new HashMap<>();
            for (String each : silent ? List.<String>of() : files) {
                answers.put(each, new Placement(List.of(
                    Run.whole(0, Long.MAX_VALUE, List.of("of-" + each.substring(each.lastIndexOf('/') + 1))))));
            }
            return answers;
        }

        @Override
        public long blockSize() {
            return 1;
        }

        @Override
        public void createNear(String file) throws IOException {
            asked.add(List.of("create " + file));
            if (fails) {
                throw new IOException("it is gone");
            }
        }
    }

    private final Known layout = new Known();
    private long now;
    private Locator locator;

    @BeforeEach
    void start() throws IOException {
        locator = new Locator(layout, Hosts.read(""), 1000, 60 * SECOND, true, () -> now);
    }

    private static Locator.File file(String name) {
        return new Locator.File("/m/" + name, 10, 1);
    }

    private List<String> hosts(Locator.File file) {
        return List.of(locator.hosts(locator.placement(file), 0, 10));
    }

    @Test
    void aFileIsAskedForOnceInItsTime() {
        assertEquals(List.of("of-a"), hosts(file("a")));
        assertEquals(List.of("of-a"), hosts(file("a")));
        now += 60 * SECOND;
        hosts(file("a"));
        assertEquals(1, layout.asked.size());
        now++;
        hosts(file("a"));
        assertEquals(2, layout.asked.size());
    }

    @Test
    void aChangedFileIsAskedForAgain() {
        hosts(file("a"));
        hosts(new Locator.File("/m/a", 11, 1));
        hosts(new Locator.File("/m/a", 11, 2));
        assertEquals(3, layout.asked.size());
    }

    @Test
    void filesThatWereListedAreAskedForTogether() {
        List<Locator.File> listed = new ArrayList<>();
        for (int i = 0; i < 250; i++) {
            listed.add(file("f" + i));
        }
        listed.add(1, new Locator.File("/m/empty", 0, 1));
        locator.listed("/m", listed);
        for (int i = 0; i < 250; i++) {
            assertEquals(List.of("of-f" + i), hosts(file("f" + i)));
        }
        assertEquals(3, layout.asked.size());
        assertEquals(List.of(100, 100, 50), layout.asked.stream().map(List::size).toList());
    }

    @Test
    void theCacheIsBounded() {
        for (int i = 0; i < 1001; i++) {
            hosts(file("f" + i));
        }
        hosts(file("f1"));
        assertEquals(1001, layout.asked.size());
        hosts(file("f0"));
        assertEquals(1002, layout.asked.size());
    }

    @Test
    void afterAFailureNothingIsAskedForAWhile() {
        Counts counts = Counts.THIS_JVM;
        long failures = counts.getFailures();
        long notAsked = counts.getNotAsked();
        layout.fails = true;
        assertEquals(List.of(), hosts(file("a")));
        now += 10 * SECOND - 1;
        assertEquals(List.of(), hosts(file("b")));
        assertEquals(1, layout.asked.size());
        assertEquals(failures + 1, counts.getFailures());
        assertEquals(notAsked + 1, counts.getNotAsked());
        layout.fails = false;
        now++;
        assertEquals(List.of("of-a"), hosts(file("a")));
    }

    @Test
    void aFileWithoutAnAnswerIsNotAskedForAtOnceAgain() {
        long unanswered = Counts.THIS_JVM.getUnanswered();
        layout.silent = true;
        assertEquals(List.of(), hosts(file("a")));
        assertEquals(List.of(), hosts(file("a")));
        assertEquals(1, layout.asked.size());
        assertEquals(unanswered + 1, Counts.THIS_JVM.getUnanswered());
    }

    @Test
    void aNameOfTwoLinesIsNotAskedFor() {
        assertEquals(List.of(), hosts(file("a\n/m/b:")));
        assertEquals(0, layout.asked.size());
    }

    @Test
    void afterAFailureFilesAreCreatedAnywhereForAWhile() {
        long anywhere = Counts.THIS_JVM.getCreatedAnywhere();
        layout.fails = true;
        assertFalse(locator.createNear("/nowhere/a"));
        assertFalse(locator.createNear("/nowhere/b"));
        assertEquals(1, layout.asked.size());
        assertEquals(anywhere + 2, Counts.THIS_JVM.getCreatedAnywhere());
        layout.fails = false;
        assertEquals(List.of("of-a"), hosts(file("a")), "placements are another matter");
        now += 10 * SECOND;
        assertTrue(locator.createNear("/nowhere/c"));
    }
}
