package penstock.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import io.netty.channel.embedded.EmbeddedChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.network.buffer.FileSegmentManagedBuffer;
import org.apache.spark.network.protocol.ChunkFetchSuccess;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import penstock.core.LocalDirectories;
import penstock.core.Role;
import penstock.core.TestDaemon;
import penstock.core.TestDaemon.Heard;

/** Tests, without a network, which files of Spark's shuffle service are governed, and to whom they belong. */
@Timeout(30)
class ShuffleServiceTest extends InAShuffleService {
    private static final String FIRST = "application_1700000000000_0011";
    private static final String SECOND = "application_1700000000000_0012";

    @Override
    Role role() {
        return Role.NODEMANAGER;
    }

    @Override
    void serve() {
        Configuration configuration = new Configuration(false);
        configuration.set("yarn.nodemanager.local-dirs", local.toString());
        LocalDirectories.serve(configuration);
    }

    private ChunkFetchSuccess chunk(String path, int length) throws Exception {
        return chunk(new FileSegmentManagedBuffer(null, file(local.resolve(path), length).toFile(), 0, length));
    }

    private static String block(String application) {
        return "usercache/u/appcache/" + application + "/blockmgr-1/0a/shuffle_0_0_0.data";
    }

    @Test
    void aBlockBelongsToTheApplicationOfItsPath() throws Exception {
        assertEquals(List.of(local.toString()), hello.directories());
        EmbeddedChannel channel = new EmbeddedChannel(new Sending(ShuffleService.all()));
        ChunkFetchSuccess first = chunk(block(FIRST), 5000);
        ChunkFetchSuccess second = chunk(block(SECOND), 6000);
        channel.writeAndFlush(first);
        channel.writeAndFlush(second);
        Heard a = daemon.next(TestDaemon.OPEN, h -> h.flow().equals(FIRST));
        Heard b = daemon.next(TestDaemon.OPEN, h -> h.flow().equals(SECOND));
        assertEquals(5000, a.to());
        assertEquals(6000, b.to());
        channel.runPendingTasks();
        assertNull(channel.readOutbound());
        daemon.mark(b.stream(), Long.MAX_VALUE);
        assertSame(second, leaves(channel));
        daemon.mark(a.stream(), Long.MAX_VALUE);
        assertSame(first, leaves(channel));
        channel.finishAndReleaseAll();
    }

    @Test
    void aLinkIntoAnotherApplicationCountsForThatOne() throws Exception {
        ChunkFetchSuccess real = chunk(block(SECOND), 1000);
        Path link = local.resolve("usercache/u/appcache/" + FIRST + "/blockmgr-1/link");
        Files.createDirectories(link.getParent());
        Files.createSymbolicLink(link, ((FileSegmentManagedBuffer) real.body()).getFile().toPath());
        EmbeddedChannel channel = new EmbeddedChannel(new Sending(ShuffleService.all()));
        channel.writeAndFlush(chunk(new FileSegmentManagedBuffer(null, link.toFile(), 0, 1000)));
        Heard open = daemon.next(TestDaemon.OPEN, h -> h.to() == 1000);
        assertEquals(SECOND, open.flow());
        daemon.mark(open.stream(), Long.MAX_VALUE);
        leaves(channel);
        channel.finishAndReleaseAll();
    }

    @Test
    void otherFilesLeaveAtOnce() throws Exception {
        EmbeddedChannel channel = new EmbeddedChannel(new Sending(ShuffleService.all()));
        ChunkFetchSuccess other = chunk("elsewhere/shuffle_0_0_0.data", 1000);
        channel.writeAndFlush(other);
        assertSame(other, channel.readOutbound());
        channel.finishAndReleaseAll();
    }
}
