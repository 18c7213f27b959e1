package penstock.sharedfs.layout;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

class MooseLayoutTest {
    private static final long CHUNK = MooseLayout.CHUNK;

    private static List<String> chunk(String name, int number) {
        return MooseLayout.parse(Answers.of(name)).get("/mnt/m/a").majority(number * CHUNK, (number + 1) * CHUNK);
    }

    @Test
    void version3() {
        assertEquals(Set.of("/mnt/m/a", "/mnt/m/none"), MooseLayout.parse(Answers.of("moosefs-3.txt")).keySet());
        assertEquals(List.of("10.0.0.1", "10.0.0.2"), chunk("moosefs-3.txt", 0));
        assertEquals(List.of("10.0.0.3"), chunk("moosefs-3.txt", 1));
        assertEquals(List.of(), chunk("moosefs-3.txt", 2));
        assertEquals(List.of(), chunk("moosefs-3.txt", 3));
    }

    @Test
    void version4() {
        assertEquals(List.of("10.0.0.1", "10.0.0.3"), chunk("moosefs-4.txt", 0));
        assertEquals(List.of(), chunk("moosefs-4.txt", 1));
    }

    @Test
    void version1() {
        assertEquals(List.of("10.0.0.1"), chunk("moosefs-1.txt", 0));
        assertEquals(List.of(), chunk("moosefs-1.txt", 1));
    }

    @Test
    void aWrongAnswerIsNone() {
        for (String wrong : List.of("\tchunk 1: empty\n", "\t\tcopy 1: 10.0.0.1:9422\n",
                "\tchunk 0: x\n\t\tcopy 1: <b>:9422\n", "\tchunk 0: x\n\tchunk 2: x\n")) {
            assertEquals(Map.of(), MooseLayout.parse("/mnt/m/a:\n" + wrong), wrong);
        }
    }

    @Test
    void damagedAnswers() {
        for (String name : List.of("moosefs-1.txt", "moosefs-3.txt", "moosefs-4.txt")) {
            Answers.damaged(name, text -> MooseLayout.parse(text).values().forEach(p -> p.majority(0, 1L << 50)));
        }
    }
}
