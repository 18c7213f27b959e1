package penstock.tez;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import penstock.task.ContainerJvm;

/** Tests Tez's own sorters, merges and fetches. */
@Timeout(180)
class TezIT extends ContainerJvm {
    /**
     * Tasks of Tez use the same file system. A task that reads what another task has written on this node opens the
     * other task's file.
     */
    @Test
    void tasksOfTezAreGoverned() throws Exception {
        daemon.generous = true;
        start(true, SmallTez.class, local.toString(), daemon.socket.toString());
        String log = ended();
        Moved moved = moved();
        assertTrue(moved.written().containsAll(Set.of("file.out", "file.out.index")), moved.toString());
        assertTrue(moved.read().containsAll(Set.of("file.out", "file.out.index")), moved.toString());
        long direct = figure(log, "direct");
        long spilled = figure(log, "spilled");
        assertTrue(direct > SmallTez.BYTES && spilled > SmallTez.BYTES / 2, log);
        assertTrue(moved.bytesWritten() >= direct + spilled, moved + " " + log);
        assertTrue(moved.bytesRead() >= direct + spilled, moved + " " + log);
    }
}
