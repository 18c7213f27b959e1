package penstock.sharedfs.layout;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import penstock.sharedfs.FakeTools;

class ToolTest {
    private static final long PLENTY = 60_000;

    @Test
    void noShellReadsTheArguments() throws IOException {
        FakeTools tools = new FakeTools().tool("show", "for each; do echo \"[$each]\"; done; exit 3");
        Tool.Answer answer = new Tool(tools.folder(), PLENTY).run("show", List.of("$(touch x)", "a  b", "; exit 0"));
        assertEquals("[$(touch x)]\n[a  b]\n[; exit 0]\n", answer.text);
        assertEquals(3, answer.exit);
    }

    @Test
    void errorsOfTheToolAreNotPartOfItsAnswer() throws IOException {
        FakeTools tools = new FakeTools().tool("noisy", "echo bad >&2; cat; echo good");
        assertEquals("good\n", new Tool(tools.folder(), PLENTY).run("noisy", List.of()).text);
    }

    @Test
    void aHangingToolIsStopped() {
        FakeTools tools = new FakeTools().tool("hang", "exec sleep 1000");
        IOException e = assertThrows(IOException.class, () -> new Tool(tools.folder(), 300).run("hang", List.of()));
        assertTrue(e.getMessage().contains("did not end within 300 ms"), e.getMessage());
    }

    @Test
    void aToolThatClosesItsOutputAndHangsIsStopped() {
        FakeTools tools = new FakeTools().tool("hang", "exec >&- ; exec sleep 1000");
        IOException e = assertThrows(IOException.class, () -> new Tool(tools.folder(), 300).run("hang", List.of()));
        assertTrue(e.getMessage().contains("did not end within 300 ms"), e.getMessage());
    }

    @Test
    void aProcessThatTheToolLeavesBehindDelaysNothing() throws IOException {
        FakeTools tools = new FakeTools().tool("leaves", "sleep 5 & echo good");
        long began = System.nanoTime();
        assertEquals("good\n", new Tool(tools.folder(), PLENTY).run("leaves", List.of()).text);
        assertTrue(System.nanoTime() - began < TimeUnit.SECONDS.toNanos(4), "the answer came only after that process");
        tools.tool("hang", "sleep 5 & exec sleep 5");
        Tool tool = new Tool(tools.folder(), 300);
        assertThrows(IOException.class, () -> tool.run("hang", List.of()));
        List<String> threads = Thread.getAllStackTraces().keySet().stream().map(Thread::getName)
            .filter(name -> name.startsWith("penstock-sharedfs-")).toList();
        assertEquals(List.of(), threads);
    }

    @Test
    void anEndlessAnswerIsAnError() {
        FakeTools tools = new FakeTools().tool("endless", "exec cat /dev/zero");
        Tool tool = new Tool(tools.folder(), PLENTY);
        IOException e = assertThrows(IOException.class, () -> tool.run("endless", List.of()));
        assertTrue(e.getMessage().contains("wrote more than"), e.getMessage());
    }

    @Test
    void aMissingToolIsAnError() {
        assertThrows(IOException.class, () -> new Tool("/nowhere", PLENTY).run("tool", List.of()));
    }
}
