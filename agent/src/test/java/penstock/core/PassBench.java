package penstock.core;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

/**
 * Prints how long a DataNode's thread takes to announce a small read and to pass its gates, with a stand-in daemon that
 * answers at once: in turn with the wait for the mark, and on a free device. The argument {@code loopback} replaces the
 * Unix socket. docs/design/agent.md has the command.
 */
public final class PassBench {
    private static final int READS = 5000;
    private static final int ROUNDS = 8;
    private static final int BYTES = 16 << 10;
    private static final int PAUSE_NANOS = 300_000;

    private PassBench() { }

    public static void main(String[] args) throws Exception {
        Path directory = Files.createTempDirectory("penstock");
        Path socket = directory.resolve("s");
        String transport = args.length > 0 ? args[0] : "unix";
        try (TestDaemon daemon = new TestDaemon(socket, Frames.ENFORCE, transport.equals("loopback"))) {
            daemon.generous = true;
            Client client = new Client(Transport.named(transport), socket.toString(), "bench", Role.DATANODE, "",
                    Patience.USUAL);
            Gates.install(client);
            Gates.serve(List.of("/d"));
            File block = new File("/d/current/blk_1");
            for (int round = 0; round < ROUNDS; round++) {
                boolean free = round % 2 == 1;
                daemon.free = free ? 1 << 1 : 0;
                while (client.mode() != Frames.ENFORCE || client.isFree(Frames.PERSISTENT, block) != free) {
                    Thread.sleep(10);
                }
                long[] nanos = round(daemon, block);
                System.out.printf("%s: median %.1f us, p99 %.1f us%n", free ? "free device" : "with the wait",
                        nanos[READS / 2] / 1e3, nanos[READS * 99 / 100] / 1e3);
            }
            Gates.install(null);
            client.stop();
        }
        Files.delete(directory);
    }

    /** Returns the times of the reads, sorted. */
    private static long[] round(TestDaemon daemon, File block) throws Exception {
        File meta = new File(block.getPath() + "_1.meta");
        long[] nanos = new long[READS];
        for (int i = 0; i < READS; i++) {
            long begin = System.nanoTime();
            Op op = Gates.enterClient("DFSClient_attempt_1700000000000_0001_m_000000_0_1_1", Peer.UNKNOWN);
            Stream stream = Gates.openRead(block, meta, (long) i * BYTES, BYTES, 128 << 20);
            Gates.constructed();
            Gates.read(stream, stream.from, stream.to);
            nanos[i] = System.nanoTime() - begin;
            Gates.close(stream, stream.to, false);
            Gates.exit(op);
            if (i % 64 == 0) {
                daemon.forget();
            }
            Thread.sleep(0, PAUSE_NANOS);
        }
        Arrays.sort(nanos);
        return nanos;
    }
}
