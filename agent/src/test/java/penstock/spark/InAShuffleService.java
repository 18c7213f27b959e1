package penstock.spark;

import io.netty.channel.embedded.EmbeddedChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.protocol.ChunkFetchSuccess;
import org.apache.spark.network.protocol.StreamChunkId;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.io.TempDir;
import penstock.core.Client;
import penstock.core.Gates;
import penstock.core.Patience;
import penstock.core.Role;
import penstock.core.TestDaemon;
import penstock.core.TestDaemon.Heard;
import penstock.core.TestGates;
import penstock.core.UnixSockets;

/** Makes the test's process one that sends blocks for all applications, with a daemon for each test. */
abstract class InAShuffleService {
    @TempDir
    Path temporary;
    /** The local directory. */
    Path local;
    TestDaemon daemon;
    /** The HELLO of this process. */
    Heard hello;

    abstract Role role();

    /** Starts to serve the local directory. */
    abstract void serve();

    @BeforeEach
    void start() throws Exception {
        local = Files.createDirectories(temporary.toRealPath().resolve("local"));
        daemon = new TestDaemon(temporary.resolve("s"), TestDaemon.ENFORCE);
        Gates.install(new Client(UnixSockets.find(), daemon.socket.toString(), "test", role(), "", Patience.USUAL));
        serve();
        hello = daemon.next(TestDaemon.HELLO);
        while (!TestGates.isEnforcing()) {
            Thread.onSpinWait();
        }
    }

    @AfterEach
    void stop() throws Exception {
        TestGates.reset();
        daemon.close();
    }

    /** Makes a file of so many bytes. */
    static Path file(Path path, int length) throws Exception {
        Files.createDirectories(path.getParent());
        return Files.write(path, new byte[length]);
    }

    static ChunkFetchSuccess chunk(ManagedBuffer block) {
        return new ChunkFetchSuccess(new StreamChunkId(1, 0), block);
    }

    /** Returns the next message that leaves. A rising mark queues a task on the event loop, which is this thread. */
    static Object leaves(EmbeddedChannel channel) {
        Object message = null;
        while (message == null) {
            channel.runPendingTasks();
            message = channel.readOutbound();
        }
        return message;
    }
}
