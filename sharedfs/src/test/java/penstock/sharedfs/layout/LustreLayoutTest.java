package penstock.sharedfs.layout;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class LustreLayoutTest {
    private static final long MIB = 1 << 20;
    private static final Map<Integer, String> SERVERS = LustreLayout.parseServers(Answers.of("lustre-servers.txt"));

    private static Placement only(String name, String file) {
        Map<String, Placement> placements = LustreLayout.parse(Answers.of(name), List.of(file), SERVERS);
        assertEquals(List.of(file), List.copyOf(placements.keySet()));
        return placements.get(file);
    }

    @Test
    void targetsAreHexadecimal() {
        assertEquals(Map.of(0, "10.0.0.1@tcp", 1, "10.0.0.2@tcp", 12, "10.0.0.3@o2ib1"), SERVERS);
    }

    @Test
    void plainFiles() {
        Map<String, Placement> placements =
            LustreLayout.parse(Answers.of("lustre-plain.txt"), List.of("/mnt/l/a", "/mnt/l/b", "/mnt/l/c"), SERVERS);
        assertEquals(2, placements.size());
        Placement a = placements.get("/mnt/l/a");
        assertEquals(List.of("10.0.0.2@tcp"), a.majority(0, MIB));
        assertEquals(List.of("10.0.0.3@o2ib1"), a.majority(MIB, 2 * MIB));
        assertEquals(List.of(), a.majority(0, 128 * MIB));
        assertEquals(List.of("10.0.0.1@tcp"), placements.get("/mnt/l/b").majority(0, 1000 * MIB));
    }

    @Test
    void yaml() {
        assertEquals(List.of("10.0.0.3@o2ib1"), only("lustre-plain-yaml.txt", "/mnt/l/a").majority(MIB, 2 * MIB));
    }

    @Test
    void components() {
        Placement pfl = only("lustre-composite.txt", "/mnt/l/pfl");
        assertEquals(List.of(), pfl.majority(0, MIB), "on the metadata server");
        assertEquals(List.of("10.0.0.1@tcp"), pfl.majority(0, 128 * MIB));
        assertEquals(List.of(), pfl.majority(256 * MIB, 300 * MIB), "without objects");
    }

    @Test
    void mirrors() {
        assertEquals(List.of("10.0.0.2@tcp", "10.0.0.3@o2ib1"),
            only("lustre-mirrors.txt", "/mnt/l/m").majority(0, 128 * MIB), "the stale mirror is left out");
    }

    @Test
    void aTargetWithoutAServerHasNoLocality() {
        Map<String, Placement> placements =
            LustreLayout.parse(Answers.of("lustre-plain.txt"), List.of("/mnt/l/a", "/mnt/l/b"), Map.of(1, "x"));
        assertEquals(List.of("x"), placements.get("/mnt/l/a").majority(0, MIB));
        assertEquals(List.of(), placements.get("/mnt/l/b").majority(0, MIB));
    }

    @Test
    void aWrongAnswerIsNone() {
        for (String wrong : List.of("", "cannot open", "lmm_stripe_count: 2\nlmm_stripe_size: 1\nlmm_pattern: raid0\n",
                "lmm_stripe_count: 1\nlmm_stripe_size: x\nlmm_pattern: raid0\nlmm_objects:\n- l_ost_idx: 0\n",
                "- l_ost_idx: 0\n",
                "lmm_stripe_count: 2\nlmm_stripe_size: 0\nlmm_pattern: raid0\n- l_ost_idx: 0\n- l_ost_idx: 1\n")) {
            assertEquals(Map.of(), LustreLayout.parse(wrong, List.of("/mnt/l/a"), SERVERS), wrong);
        }
    }

    @Test
    void damagedAnswers() {
        for (String name : List.of("lustre-plain.txt", "lustre-plain-yaml.txt", "lustre-composite.txt",
                "lustre-mirrors.txt")) {
            Answers.damaged(name, text -> LustreLayout.parse(text, List.of("/mnt/l/a", "/mnt/l/b"), SERVERS).values()
                .forEach(p -> p.majority(0, 1L << 50)));
            Answers.damaged(name, text -> LustreLayout.parse(text, List.of("/mnt/l/a"), SERVERS).values()
                .forEach(p -> p.majority(0, 1L << 50)));
        }
        Answers.damaged("lustre-servers.txt", LustreLayout::parseServers);
    }
}
