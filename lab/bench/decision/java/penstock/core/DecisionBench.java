package penstock.core;

import java.io.File;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collections;
import java.util.concurrent.TimeUnit;

/**
 * Measures what each call to the agent costs the DataNode's threads, with the agent's own classes and a real daemon's
 * socket. This class is in the agent's package, but not in the agent's jar.
 *
 * <p>Arguments: the path of an echo server's socket; the path of the socket of a daemon that wants one report for each
 * gibibyte; the path of the socket of a daemon with its usual stride; and the number of trips. Each line of output has
 * a name, the median and the 99th percentile in nanoseconds, and the number of measured calls.
 */
public final class DecisionBench {
    private static final int PACKET = 64 << 10;
    private static final int BATCH = 1000;
    private static final long END = 1L << 60;
    /** An OPEN frame's size. */
    private static final int MESSAGE = 64;

    private DecisionBench() { }

    private interface Call {
        void run(int i) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        int trips = Integer.parseInt(args[3]);
        echo(Path.of(args[0]), trips);
        gates(args[1], trips);
        messages(args[2], trips);
        System.exit(0); // the agent's threads are daemons, but may be in a call
    }

    private static void echo(Path path, int trips) throws Exception {
        try (SocketChannel c = SocketChannel.open(StandardProtocolFamily.UNIX)) {
            c.connect(UnixDomainSocketAddress.of(path));
            ByteBuffer b = ByteBuffer.allocateDirect(MESSAGE);
            single("echo", trips, i -> {
                b.clear();
                c.write(b);
                b.clear();
                while (b.hasRemaining()) {
                    c.read(b);
                }
            }, null);
        }
    }

    /** Measures packets that need not wait and do not send a message. */
    private static void gates(String socket, int trips) throws Exception {
        Client client = connect(socket);
        Op op = Gates.enterClient("DFSClient_attempt_1700000000000_0001_m_000000_0_1_1", Peer.UNKNOWN);
        Stream read = Gates.openRead(new File("/endless"), null, 0, END, END);
        await(() -> read.mark == Long.MAX_VALUE, "a mark");
        long[] at = {0};
        batched("read packet", trips, i -> {
            Gates.read(read, at[0], at[0] + PACKET);
            at[0] += PACKET;
        });
        Gates.close(read, at[0], false);
        Stream write = Gates.openWrite(new File("/endless"), null, 0);
        await(() -> write.mark == Long.MAX_VALUE, "a mark");
        at[0] = 0;
        batched("write packet", trips, i -> {
            Gates.receiving(write);
            Stream s = Gates.writing();
            if (s != null) {
                Gates.packet(s);
            }
            at[0] += PACKET;
            Gates.received(write, at[0]);
        });
        Gates.close(write, at[0], false);
        Gates.exit(op);
        Gates.install(null);
        client.stop();
    }

    /** Measures packets that send a message, and round trips for which a thread waits. */
    private static void messages(String socket, int trips) throws Exception {
        Client client = connect(socket);
        Op op = Gates.enterClient("DFSClient_attempt_1700000000000_0001_m_000000_0_1_1", Peer.UNKNOWN);
        Stream read = Gates.openRead(new File("/endless"), null, 0, END, END);
        await(() -> read.mark == Long.MAX_VALUE, "a mark");
        long[] at = {0};
        single("packet with a message", trips, i -> {
            at[0] += Gates.OPEN_READ_STRIDES * (long) client.stride();
            Gates.read(read, at[0], at[0] + PACKET);
        }, () -> {
            while (read.queued.get()) { // the agent's thread has not taken the message yet
                Thread.onSpinWait();
            }
            pause();
        });
        thread("agent's thread, a message", trips, i -> {
            at[0] += Gates.OPEN_READ_STRIDES * (long) client.stride();
            Gates.read(read, at[0], at[0] + PACKET);
            while (read.queued.get()) {
                Thread.onSpinWait();
            }
            pause();
        });
        Gates.close(read, at[0], false);
        single("open to mark, resident", trips, i -> trip("/resident"), DecisionBench::pause);
        single("open to mark, cold", trips, i -> trip("/cold"), DecisionBench::pause);
        Gates.exit(op);
        Gates.install(null);
        client.stop();
    }

    private static void trip(String block) {
        Stream s = Gates.openRead(new File(block), null, 0, PACKET, PACKET);
        Gates.constructed();
        Gates.read(s, 0, PACKET);
        if (s.mark < PACKET) {
            throw new IllegalStateException("the gate let through what was not staged");
        }
        Gates.close(s, PACKET, false);
    }

    private static Client connect(String socket) throws Exception {
        Client client = new Client(UnixSockets.find(), socket, "bench", Role.DATANODE, "", Patience.USUAL);
        Gates.install(client);
        Gates.serve(Collections.singletonList("/"));
        await(() -> client.isConnected() && client.mode() == Frames.ENFORCE, "the daemon");
        return client;
    }

    private interface Condition {
        boolean holds();
    }

    private static void await(Condition condition, String what) throws InterruptedException {
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10); !condition.holds();) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException(what + " did not come within 10 s");
            }
            Thread.sleep(1);
        }
    }

    /** Waits so long that the agent's own thread goes to sleep, as it does between two quanta. */
    private static void pause() {
        for (long end = System.nanoTime() + 50_000; System.nanoTime() < end;) {
            Thread.onSpinWait();
        }
    }

    private static void single(String name, int n, Call call, Runnable between) throws Exception {
        int warm = n / 2;
        double[] times = new double[n];
        for (int i = -warm; i < n; i++) {
            if (between != null) {
                between.run();
            }
            long from = System.nanoTime();
            call.run(i);
            long took = System.nanoTime() - from;
            if (i >= 0) {
                times[i] = took;
            }
        }
        print(name, times, n);
    }

    /** Measures the CPU time of the agent's own thread per call. Each sample is the mean over a tenth of the calls. */
    private static void thread(String name, int n, Call call) throws Exception {
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        long agent = 0;
        for (ThreadInfo t : threads.getThreadInfo(threads.getAllThreadIds())) {
            if (t != null && t.getThreadName().equals("penstock-agent")) {
                agent = Math.max(agent, t.getThreadId()); // the last agent started: an earlier one may still be ending
            }
        }
        int batch = n / 10;
        double[] means = new double[10];
        for (int k = 0; k < means.length; k++) {
            long from = threads.getThreadCpuTime(agent);
            for (int i = 0; i < batch; i++) {
                call.run(i);
            }
            means[k] = (double) (threads.getThreadCpuTime(agent) - from) / batch;
        }
        print(name, means, 10 * batch);
    }

    /** Measures calls in batches, because a call takes less time than reading the clock. */
    private static void batched(String name, int batches, Call call) throws Exception {
        int warm = batches / 2;
        double[] means = new double[batches];
        for (int i = -warm; i < batches; i++) {
            long from = System.nanoTime();
            for (int k = 0; k < BATCH; k++) {
                call.run(k);
            }
            double took = System.nanoTime() - from;
            if (i >= 0) {
                means[i] = took / BATCH;
            }
        }
        print(name, means, batches * BATCH);
    }

    private static void print(String name, double[] values, int n) {
        Arrays.sort(values);
        System.out.printf("%s\t%.1f\t%.1f\t%d%n", name, at(values, 0.50), at(values, 0.99), n);
    }

    private static double at(double[] sorted, double part) {
        return sorted[Math.max(0, (int) Math.ceil(part * sorted.length) - 1)];
    }
}
