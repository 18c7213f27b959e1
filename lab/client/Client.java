import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/**
 * HDFS clients on demand: a separate client of Hadoop performs each operation. Each client has the
 * name of a task of the application that the command names. One JVM runs all clients, because on a small
 * machine the start of a JVM for each client would take longer than the transfer of its data.
 *
 * <p>A line on standard input is {@code <id> <operation> key=value ...}, and a line on standard
 * output is {@code <id> <event> <value>}. A transfer stops at its limit ("to") until the test raises
 * the limit, so that a test can act in the middle of a transfer. The end of standard input ends the
 * process.
 */
public final class Client {
    private static final int STEP = 256 << 10;
    private static final long NO_LIMIT = -1;

    private static final Map<String, Client> RUNNING = new ConcurrentHashMap<>();
    private static final PrintStream OUT = System.out;

    private final String id;
    private final Map<String, String> args;
    private long limit = NO_LIMIT;

    private Client(String id, Map<String, String> args) {
        this.id = id;
        this.args = args;
    }

    public static void main(String[] argv) throws Exception {
        System.setOut(System.err); // a library's output is not an event
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            Map<String, String> args = new HashMap<>();
            for (int i = 2; i < words.length; i++) {
                int eq = words[i].indexOf('=');
                args.put(words[i].substring(0, eq), words[i].substring(eq + 1));
            }
            if (words[1].equals("to")) {
                Client running = RUNNING.get(words[0]);
                if (running != null) {
                    running.raise(Long.parseLong(args.get("limit")));
                }
                continue;
            }
            Client client = new Client(words[0], args);
            client.limit = client.number("limit", NO_LIMIT);
            RUNNING.put(client.id, client);
            Thread thread = new Thread(() -> client.run(words[1]), words[1] + " " + words[0]);
            thread.setDaemon(true);
            thread.start();
        }
        System.exit(0);
    }

    private void run(String operation) {
        Configuration conf = new Configuration();
        if (args.containsKey("attempt")) {
            conf.set("mapreduce.task.attempt.id", args.get("attempt"));
        }
        if (args.containsKey("hedged")) { // milliseconds after which a second DataNode is asked for the same bytes
            conf.setInt("dfs.client.hedged.read.threadpool.size", 64);
            conf.set("dfs.client.hedged.read.threshold.millis", args.get("hedged"));
        }
        try (DistributedFileSystem fs = (DistributedFileSystem) FileSystem.newInstance(FileSystem.getDefaultUri(conf), conf)) {
            Path path = new Path(args.get("path"));
            fs.setVerifyChecksum(!args.containsKey("unverified"));
            if (operation.equals("put")) {
                put(fs, path);
            } else if (operation.equals("get")) {
                get(fs, path);
            } else if (operation.equals("setrep")) {
                fs.setReplication(path, (short) number("replication", 1));
                event("done", "-");
            } else if (operation.equals("blocks")) {
                event("done", blocks(fs, path));
            } else if (operation.equals("probe-write")) {
                new Probe(this, fs).write(path);
                event("done", "-");
            } else if (operation.equals("probe-read")) {
                new Probe(this, fs).read(path);
                event("done", "-");
            } else {
                event("error", "no such operation: " + operation);
            }
        } catch (Throwable t) {
            event("error", String.valueOf(t).replaceAll("\\s+", " "));
        } finally {
            RUNNING.remove(id);
        }
    }

    private void put(DistributedFileSystem fs, Path path) throws Exception {
        long bytes = number("bytes", 0);
        long seed = number("seed", 0);
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        byte[] buffer = new byte[STEP];
        FSDataOutputStream out = fs.create(path, FsPermission.getFileDefault(), true, 64 << 10,
                (short) number("replication", 1), number("block", 0), null, favored());
        try {
            for (long pos = 0; pos < bytes; ) {
                if (at(pos)) {
                    if (args.containsKey("hsync")) {
                        out.hsync();
                    } else {
                        out.hflush();
                    }
                    hold(pos);
                }
                int n = (int) Math.min(buffer.length, bytes - pos);
                fill(buffer, seed, pos);
                out.write(buffer, 0, n);
                digest.update(buffer, 0, n);
                pos += n;
                event("progress", pos);
            }
        } finally {
            out.close();
        }
        event("done", hex(digest.digest()));
    }

    private void get(DistributedFileSystem fs, Path path) throws Exception {
        long bytes = number("bytes", Long.MAX_VALUE);
        long seed = number("seed", 0);
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        byte[] buffer = new byte[STEP];
        byte[] want = new byte[STEP];
        try (FSDataInputStream in = fs.open(path)) {
            for (long pos = 0; pos < bytes; ) {
                if (at(pos)) {
                    hold(pos);
                }
                int n = 0;
                int room = (int) Math.min(STEP, bytes - pos);
                for (int got = in.read(buffer, 0, room); got > 0; got = in.read(buffer, n, room - n)) {
                    n += got;
                }
                if (n == 0) {
                    break;
                }
                fill(want, seed, pos);
                for (int i = 0; i < n; i++) {
                    if (buffer[i] != want[i]) {
                        throw new IllegalStateException("the data differ at byte " + (pos + i));
                    }
                }
                digest.update(buffer, 0, n);
                pos += n;
                event("progress", pos);
            }
        }
        event("done", hex(digest.digest()));
    }

    /** Returns every block of the file as name:length:address,address, in order. */
    private static String blocks(DistributedFileSystem fs, Path path) throws Exception {
        StringBuilder text = new StringBuilder();
        for (LocatedBlock b : fs.getClient().getLocatedBlocks(path.toUri().getPath(), 0).getLocatedBlocks()) {
            text.append(text.length() > 0 ? ";" : "").append(b.getBlock().getBlockName()).append(':').append(b.getBlockSize());
            char separator = ':';
            for (DatanodeInfo d : b.getLocations()) {
                text.append(separator).append(d.getXferAddr());
                separator = ',';
            }
        }
        return text.length() == 0 ? "-" : text.toString();
    }

    private InetSocketAddress[] favored() {
        if (!args.containsKey("on")) {
            return null;
        }
        URI address = URI.create("hdfs://" + args.get("on"));
        return new InetSocketAddress[] {InetSocketAddress.createUnresolved(address.getHost(), address.getPort())};
    }

    synchronized boolean at(long pos) {
        return limit != NO_LIMIT && pos >= limit;
    }

    private synchronized void hold(long pos) throws InterruptedException {
        event("reached", pos);
        while (at(pos)) {
            wait();
        }
    }

    private synchronized void raise(long to) {
        limit = to;
        notifyAll();
    }

    /** Computes the file's bytes from pos on: a mixed counter, so any part can be computed by itself. */
    static void fill(byte[] buffer, long seed, long pos) {
        for (int i = 0; i < buffer.length; i += 8) {
            long z = seed + ((pos + i) / 8 + 1) * 0x9e3779b97f4a7c15L;
            z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
            z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
            z ^= z >>> 31;
            for (int b = 0; b < 8; b++) {
                buffer[i + b] = (byte) (z >>> (8 * b));
            }
        }
    }

    void event(String name, Object value) {
        synchronized (OUT) {
            OUT.println(id + " " + name + " " + value);
            OUT.flush();
        }
    }

    long number(String key, long otherwise) {
        return args.containsKey(key) ? Long.parseLong(args.get(key)) : otherwise;
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte b : bytes) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }
}
