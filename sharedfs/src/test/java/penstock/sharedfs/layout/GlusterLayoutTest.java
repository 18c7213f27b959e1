package penstock.sharedfs.layout;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

class GlusterLayoutTest {
    private static final long MIB = 1 << 20;
    private static final String ATTRIBUTE = "glusterfs.pathinfo";

    private static Map<String, Placement> parsed(String name, long shard) {
        return GlusterLayout.parse(Answers.of(name), ATTRIBUTE, shard);
    }

    @Test
    void distributedAndReplicated() {
        Map<String, Placement> files = parsed("gluster-distributed.txt", 0);
        assertEquals(Set.of("/mnt/v/a", "/mnt/v/b c", "/mnt/v/new"), files.keySet());
        assertEquals(List.of("node1"), files.get("/mnt/v/a").majority(0, 100 * MIB));
        assertEquals(List.of("node2", "node3.example.com"), files.get("/mnt/v/b c").majority(0, 1));
        assertEquals(List.of("node3", "node4"), files.get("/mnt/v/new").majority(0, 1));
    }

    @Test
    void onlyTheFirstShardIsKnown() {
        Placement a = parsed("gluster-distributed.txt", 64 * MIB).get("/mnt/v/a");
        assertEquals(List.of("node1"), a.majority(0, 64 * MIB));
        assertEquals(List.of(), a.majority(64 * MIB, 128 * MIB));
        assertEquals(List.of(), a.majority(0, 128 * MIB));
    }

    @Test
    void ifNobodySaysWhetherThereAreShardsTheSmallestIsAssumed() {
        assertEquals(GlusterLayout.LEAST_SHARD, new GlusterLayout(null, ATTRIBUTE, -1).blockSize());
        assertEquals(128 * MIB, new GlusterLayout(null, ATTRIBUTE, 0).blockSize());
        assertEquals(64 * MIB, new GlusterLayout(null, ATTRIBUTE, 64 * MIB).blockSize());
    }

    @Test
    void stripesAndFragments() {
        Map<String, Placement> files = parsed("gluster-other.txt", 0);
        assertEquals(Set.of("/mnt/v/s", "/mnt/v/sr", "/mnt/v/old", "/mnt/v/ec"), files.keySet(),
            "a folder is in several parts and has no answer");
        assertEquals(List.of("node2"), files.get("/mnt/v/s").majority(131072, 262144));
        assertEquals(List.of("node3", "node4"), files.get("/mnt/v/sr").majority(MIB, 2 * MIB));
        assertEquals(List.of("node1"), files.get("/mnt/v/old").majority(0, 1));
        assertEquals(List.of(), files.get("/mnt/v/ec").majority(0, 1));
    }

    @Test
    void quotesOfTheTool() {
        Map<String, Placement> files = GlusterLayout.parse(Answers.of("getfattr.txt"), "user.pathinfo", 0);
        assertEquals(Set.of("/mnt/v/a b=c", "/mnt/v/\u00fc\\x"), files.keySet());
        files.values().forEach(p -> assertEquals(List.of("n"), p.majority(0, 1)));
    }

    @Test
    void anythingElseIsWrong() {
        for (String value : List.of("", "(", "<POSIX(/b):n:/b/f>)", "(<DISTRIBUTE:v>)", "(<NEW:v> <POSIX(/b):n:/b/f>)",
                "(<DISTRIBUTE:v> <POSIX(/b):n ode:/b/f>)", "(<STRIPE:s:[x]> <POSIX(/b):n:/b/f>)",
                "(<DISTRIBUTE:v> <POSIX(/b):n:/b/f> <POSIX(/b):m:/b/f>)",
                "(<STRIPE:s:[0]> <POSIX(/b):n:/b/f> <POSIX(/b):m:/b/f>)", "(<DISTRIBUTE:v> ".repeat(50_000))) {
            assertThrows(IllegalArgumentException.class, () -> GlusterLayout.placement(value, 0), value);
        }
    }

    @Test
    void damagedAnswers() {
        for (String name : List.of("gluster-distributed.txt", "gluster-other.txt", "getfattr.txt")) {
            Answers.damaged(name, text -> GlusterLayout.parse(text, ATTRIBUTE, 0).values()
                .forEach(p -> p.majority(0, 1L << 50)));
        }
    }
}
