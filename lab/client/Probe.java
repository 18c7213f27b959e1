import java.io.IOException;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;

/**
 * Performs small operations at a steady rate and times each of them, to measure how long clients
 * wait. An operation that has ended is reported as
 * {@code write|read|create|close <start> <nanoseconds>}; the start is in microseconds since 1970. An
 * operation that fails is reported as {@code trouble <text>}, and the probe continues with a new
 * file.
 */
final class Probe {
    /** Size in bytes of each of the files that are written in turn. */
    private static final long ROLL = 8 << 20;
    private static final int FILES = 4;

    private final Client client;
    private final DistributedFileSystem fs;
    private final byte[] buffer;
    private final long everyNanos;
    private final long seed;
    private long due = System.nanoTime();

    Probe(Client client, DistributedFileSystem fs) {
        this.client = client;
        this.fs = fs;
        this.buffer = new byte[(int) client.number("bytes", 64 << 10)];
        this.everyNanos = client.number("every", 50) * 1_000_000;
        this.seed = client.number("seed", 0);
    }

    private interface Operation {
        void run() throws IOException;
    }

    private void timed(String name, Operation operation) throws IOException {
        long start = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
        long begin = System.nanoTime();
        operation.run();
        client.event(name, start + " " + (System.nanoTime() - begin));
    }

    /** Waits for the next turn; missed turns are not repeated. */
    private void pace() throws InterruptedException {
        due = Math.max(due + everyNanos, System.nanoTime());
        long left = due - System.nanoTime();
        if (left > 0) {
            Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
        }
    }

    private void trouble(IOException e) {
        client.event("trouble", String.valueOf(e).replaceAll("\\s+", " "));
    }

    /** Writes and flushes buffers one after the other until the client is stopped. */
    void write(Path path) throws InterruptedException {
        FSDataOutputStream[] out = new FSDataOutputStream[1];
        for (int file = 0; !client.at(0); file++) {
            Path next = path.suffix("-" + file % FILES);
            try {
                pace();
                timed("create", () -> out[0] = fs.create(next, FsPermission.getFileDefault(), true, 64 << 10,
                        (short) client.number("replication", 1), ROLL, null));
                for (long pos = 0; pos < ROLL && !client.at(0); pos += buffer.length) {
                    pace();
                    Client.fill(buffer, seed, pos);
                    timed("write", () -> {
                        out[0].write(buffer);
                        out[0].hflush();
                    });
                }
                timed("close", () -> out[0].close());
            } catch (IOException e) {
                trouble(e);
            }
        }
    }

    /** Reads buffers from random places of an existing file until the client is stopped. */
    void read(Path path) throws InterruptedException {
        long buffers = client.number("length", buffer.length) / buffer.length;
        byte[] want = new byte[buffer.length];
        for (long turn = 0; !client.at(0); ) {
            try (FSDataInputStream in = fs.open(path)) {
                for (; !client.at(0); turn++) {
                    pace();
                    long pos = Math.floorMod(turn * 7919, buffers) * buffer.length;
                    timed("read", () -> in.readFully(pos, buffer));
                    Client.fill(want, seed, pos);
                    if (!java.util.Arrays.equals(want, buffer)) {
                        throw new IllegalStateException("the data differ from byte " + pos + " on");
                    }
                }
            } catch (IOException e) {
                trouble(e);
            }
        }
    }
}
