package penstock.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import io.netty.channel.embedded.EmbeddedChannel;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.network.buffer.FileSegmentManagedBuffer;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.buffer.NioManagedBuffer;
import org.apache.spark.network.protocol.ChunkFetchSuccess;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import penstock.core.Role;
import penstock.core.TestDaemon;
import penstock.core.TestDaemon.Heard;
import penstock.core.Values;

/** Tests, without a network, which files of a standalone Worker's shuffle service are governed, and to whom they belong. */
@Timeout(30)
class WorkersFilesTest extends InAShuffleService {
    private static final String FIRST = "app-20261122123456-0007";
    private static final String SECOND = "app-20261122123456-0008";

    private final EmbeddedChannel channel = new EmbeddedChannel(new Sending(WorkersFiles.all()));

    @Override
    Role role() {
        return Role.WORKER;
    }

    @Override
    void serve() {
        WorkersFiles.serve(new SparkConf(false)
                .set("spark.local.dir", local + "," + local + "/../local," + local + "2"));
    }

    /** Returns a part of a file as Spark finds it. */
    private static ManagedBuffer found(Path path) {
        return new FileSegmentManagedBuffer(null, path.toFile(), 100, 900);
    }

    private Path block(String name) throws Exception {
        return file(local.resolve("spark-1/executor-1/blockmgr-1/0a/" + name), 1000);
    }

    @Test
    void theDirectoriesAreRegistered() {
        assertEquals(Values.WORKER, hello.role());
        assertEquals("", hello.flow());
        assertEquals(List.of(local + "/", local + "2/"), hello.directories());
    }

    /** The path names no application, so the application counts that the request names. The daemon verifies it. */
    @Test
    void aBlockBelongsToTheApplicationOfItsRequest() throws Exception {
        Path path = block("shuffle_0_0_0.data");
        ChunkFetchSuccess first = chunk(WorkersFiles.requested(found(path), FIRST, null));
        ChunkFetchSuccess second = chunk(WorkersFiles.requested(found(path), SECOND, null));
        channel.writeAndFlush(first);
        channel.writeAndFlush(second);
        Heard a = daemon.next(TestDaemon.OPEN, h -> h.flow().equals(FIRST));
        Heard b = daemon.next(TestDaemon.OPEN, h -> h.flow().equals(SECOND));
        assertEquals(path.toString(), a.block());
        assertEquals(Values.INTERMEDIATE, a.kind());
        assertEquals(100, a.from());
        assertEquals(1000, a.to());
        channel.runPendingTasks();
        assertNull(channel.readOutbound());
        daemon.mark(b.stream(), Long.MAX_VALUE);
        assertSame(second, leaves(channel));
        daemon.mark(a.stream(), Long.MAX_VALUE);
        assertSame(first, leaves(channel));
        channel.finishAndReleaseAll();
    }

    /** A name that no standalone application has does not make a file ungoverned. */
    @Test
    void aStrangeNameIsUnattributed() throws Exception {
        for (String name : List.of("application_1700000000000_0011", "clients", "", FIRST + "/x", "x".repeat(9000))) {
            ChunkFetchSuccess asked = chunk(WorkersFiles.requested(found(block("shuffle_0_0_0.data")), name, null));
            channel.writeAndFlush(asked);
            Heard open = daemon.next(TestDaemon.OPEN);
            assertEquals("unattributed", open.flow());
            daemon.mark(open.stream(), Long.MAX_VALUE);
            assertSame(asked, leaves(channel));
        }
        channel.finishAndReleaseAll();
    }

    @Test
    void otherFilesLeaveAtOnce() throws Exception {
        Path outside = file(local.resolveSibling("elsewhere/shuffle_0_0_0.data"), 1000);
        Path link = Files.createSymbolicLink(block("shuffle_0_0_0.data").resolveSibling("link"), outside);
        for (ManagedBuffer ungoverned : List.of(WorkersFiles.requested(found(outside), FIRST, null),
                WorkersFiles.requested(found(link), FIRST, null), found(block("not_requested")),
                WorkersFiles.requested(new NioManagedBuffer(ByteBuffer.allocate(10)), FIRST, null))) {
            ChunkFetchSuccess other = chunk(ungoverned);
            channel.writeAndFlush(other);
            assertSame(other, channel.readOutbound());
        }
        channel.finishAndReleaseAll();
    }
}
