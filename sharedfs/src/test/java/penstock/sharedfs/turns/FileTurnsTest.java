package penstock.sharedfs.turns;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.Test;
import penstock.sharedfs.FakeTools;
import penstock.sharedfs.layout.Counts;
import penstock.sharedfs.layout.Locator;
import penstock.sharedfs.layout.Setup;

/** Which server is asked for which bytes, with a script in the place of the tool. */
class FileTurnsTest {
    private static final int MIB = 1 << 20;
    private static final long CHUNK = 64L << 20;
    /** Chunk 0 is on server 1, chunk 1 on server 2, and so on; as many chunks as the file "chunks" has bytes. */
    private static final String MOOSE = """
        for file; do
          printf '%s:\\n' "$file"
          i=0
          n=$(wc -c < $(dirname "$0")/chunks)
          while [ $i -lt $n ]; do
            printf '\\tchunk %d: 02_01 / (id:2 ver:1)\\n' $i
            i=$((i+1))
            printf '\\t\\tcopy 1: 10.0.0.%d:9422 (status:VALID)\\n' $i
          done
        done
        """;

    private final FakeTools tools = new FakeTools().tool("mfsfileinfo", MOOSE);
    private final List<String> asked = Collections.synchronizedList(new ArrayList<>());

    private void chunks(int n) throws IOException {
        java.nio.file.Files.write(Path.of(tools.folder(), "chunks"), new byte[n]);
    }

    private Locator locator() throws IOException {
        Configuration conf = new Configuration(false);
        tools.configure(conf, "moosefs");
        return Setup.locator(conf, "/mnt");
    }

    private final Turns.Daemon daemon = (write, server, bytes) -> {
        asked.add(server + " " + bytes);
        return new Turns.Held() {
            @Override
            public boolean isGiven() {
                return true;
            }

            @Override
            public void end() {
                asked.add("end");
            }
        };
    };

    @Test
    void aReadAsksTheServerOfItsRange() throws IOException {
        chunks(2);
        FileTurns turns = new FileTurns(new Turns(daemon, locator(), Turns.MOST, true), new Locator.File("/mnt/f", 2 * CHUNK, 0), false);
        turns.take(0, MIB).close();
        turns.take(CHUNK - MIB, MIB).close();
        turns.take(CHUNK, MIB).close();
        turns.take(0, Turns.LEAST - 1).close();
        assertEquals(List.of("10.0.0.1 1048576", "end", "10.0.0.1 1048576", "end", "10.0.0.2 1048576", "end"), asked);
        assertEquals(1, tools.called().size());
    }

    /** The first chunk of a new file does not exist before its first bytes are written. */
    @Test
    void aWriteAsksAgainAsItsFileGrows() throws IOException {
        chunks(0);
        FileTurns turns = new FileTurns(new Turns(daemon, locator(), Turns.MOST, true), new Locator.File("/mnt/f", 0, 0), true);
        long before = Counts.THIS_JVM.getTurnsNotAsked();
        turns.take(0, MIB).close();
        assertEquals(before + 1, Counts.THIS_JVM.getTurnsNotAsked());
        for (long at = MIB; at < 3 * CHUNK; at += MIB) {
            chunks((int) (at / CHUNK) + 1);
            turns.take(at, MIB).close();
        }
        for (int server = 1; server <= 3; server++) {
            int n = Collections.frequency(asked, "10.0.0." + server + " 1048576");
            assertTrue(n >= 58, "server " + server + " was asked " + n + " times");
        }
        assertTrue(tools.called().size() <= 6, tools.called().size() + " questions");
    }

    @Test
    void aDaemonThatFailsHoldsNothing() throws IOException {
        chunks(1);
        Turns turns = new Turns((write, server, bytes) -> {
            throw new IllegalStateException("broken");
        }, locator(), Turns.MOST, true);
        new FileTurns(turns, new Locator.File("/mnt/f", CHUNK, 0), false).take(0, MIB).close();
    }

    @Test
    void onlyContainersTakeTurns() throws IOException {
        Configuration conf = new Configuration(false);
        Map<String, String> container = Map.of("CONTAINER_ID", "container_1700000000000_0001_01_000001");
        assertNull(Turns.find(conf, container, locator(), Path.of("/mnt")));
        conf.setBoolean(Turns.ENABLED, true);
        assertNull(Turns.find(conf, Map.of(), locator(), Path.of("/mnt")));
        assertNull(Turns.find(conf, container, null, Path.of("/mnt")));
    }
}
