package penstock.agent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.commons.io.FileUtils;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import penstock.core.Frames;
import penstock.core.TestDaemon.Heard;
import penstock.core.TestDaemon;

/** Tests a real ShuffleHandler with the packed agent and a single event loop for all connections. */
@Timeout(90)
class ShuffleIT {
    private static final int SIZE = 1_300_000;

    private Path directory;
    private Path local;
    private TestDaemon daemon;
    private Process jvm;
    private BufferedReader said;
    private int port;
    private final Map<String, byte[]> outputs = new HashMap<>();

    @BeforeEach
    void begin() throws Exception {
        directory = Files.createTempDirectory("penstock");
        local = directory.resolve("nm-local-dir");
        Random random = new Random(3);
        for (int application = 1; application <= 3; application++) {
            for (int m = 0; m < 5; m++) {
                byte[] data = new byte[m == 4 ? 10 : SIZE + m];
                random.nextBytes(data);
                String attempt = attempt(application, m);
                outputs.put(attempt, SmallShuffle.map(local, application, attempt, data));
            }
        }
        daemon = new TestDaemon(directory.resolve("s"), Frames.ENFORCE);
        List<String> classPath = SmallHdfs.hadoop();
        Path own = Path.of(SmallShuffle.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        classPath.add(own.toString());
        List<String> command = SmallHdfs.java(directory.resolve("s"), classPath);
        command.replaceAll(a -> a.startsWith("-javaagent:") ? a + ",role=nodemanager" : a);
        command.add(SmallShuffle.class.getName());
        command.add(local.toString());
        jvm = new ProcessBuilder(command).redirectError(directory.resolve("log").toFile()).start();
        said = new BufferedReader(new InputStreamReader(jvm.getInputStream(), StandardCharsets.UTF_8));
        String line = said.readLine();
        while (line != null && !line.startsWith("port ")) {
            line = said.readLine();
        }
        assertTrue(line != null, () -> "no ShuffleHandler: " + log());
        port = Integer.parseInt(line.substring(5));
        Heard hello = daemon.next(Frames.HELLO);
        assertEquals(Frames.NODEMANAGER, hello.role());
        assertEquals(List.of(local.toString()), hello.directories());
        while (!status().contains("Mode=enforce")) {
            Thread.onSpinWait();
        }
    }

    @AfterEach
    void end() throws Exception {
        if (jvm != null) {
            jvm.destroyForcibly().waitFor();
        }
        if (daemon != null) {
            daemon.close();
        }
        FileUtils.deleteDirectory(directory.toFile());
    }

    private String log() {
        try {
            return Files.readString(directory.resolve("log"));
        } catch (IOException e) {
            return e.toString();
        }
    }

    private String status() throws IOException {
        jvm.getOutputStream().write('\n');
        jvm.getOutputStream().flush();
        String line = said.readLine();
        while (line != null && !line.startsWith("Looks=")) {
            line = said.readLine();
        }
        assertTrue(line != null, this::log);
        return line;
    }

    /** Checks that no netty thread ever stopped, and that the agent's code had no failures and left nothing open. */
    private void sound() throws IOException {
        String status = status();
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
                !status.contains("StreamsOpen=0") && System.nanoTime() < end; status = status()) {
            Thread.onSpinWait();
        }
        assertTrue(status.contains(" Ours=0 "), status);
        assertTrue(status.matches("Looks=[1-9].* State=woven .* StreamsOpen=0 Suppressed=0 ShuffleUngoverned=0"),
                status + log());
    }

    /** Returns how often the event loop's thread was examined, and how often it was parked, for any reason. */
    private long[] seen() throws IOException {
        Matcher m = Pattern.compile("Looks=([0-9]+) Stopped=([0-9]+) .*").matcher(status());
        assertTrue(m.matches());
        return new long[] {Long.parseLong(m.group(1)), Long.parseLong(m.group(2))};
    }

    private static String attempt(int application, int map) {
        return "attempt_" + SmallShuffle.STAMP + "_000" + application + "_m_00000" + map + "_0";
    }

    /** A reducer's connection. */
    private final class Reducer implements Closeable {
        private final Socket socket = new Socket("127.0.0.1", port);
        private final DataInputStream in = new DataInputStream(socket.getInputStream());
        private final ByteArrayOutputStream expected = new ByteArrayOutputStream();

        Reducer() throws IOException {
            socket.setSoTimeout(60_000);
        }

        void ask(int application, int... maps) throws Exception {
            List<String> attempts = new ArrayList<>();
            expected.reset();
            for (int m : maps) {
                attempts.add(attempt(application, m));
                expected.writeBytes(outputs.get(attempt(application, m)));
            }
            socket.getOutputStream().write(SmallShuffle.request(port, application, attempts.toArray(new String[0]))
                    .getBytes(StandardCharsets.US_ASCII));
        }

        /** Reads the response's head. */
        void head() throws IOException {
            StringBuilder head = new StringBuilder();
            while (head.indexOf("\r\n\r\n") < 0) {
                head.append((char) in.readUnsignedByte());
            }
            assertTrue(head.toString().startsWith("HTTP/1.1 200 OK"), () -> head + log());
            String length = "content-length: " + expected.size() + "\r\n";
            assertTrue(head.toString().toLowerCase(java.util.Locale.ROOT).contains(length), head.toString());
        }

        void read(int from, int to) throws IOException {
            byte[] bytes = new byte[to - from];
            in.readFully(bytes);
            assertArrayEquals(java.util.Arrays.copyOfRange(expected.toByteArray(), from, to), bytes);
        }

        void all() throws IOException {
            head();
            read(0, expected.size());
        }

        /** Checks that nothing arrives for a while. No event can announce this, so the test waits for a fixed time. */
        void nothing() throws IOException {
            socket.setSoTimeout(400);
            try {
                throw new AssertionError("came: " + in.readUnsignedByte());
            } catch (SocketTimeoutException e) {
                socket.setSoTimeout(60_000);
            }
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }

    private Heard opened(int application, int kind) throws InterruptedException {
        String flow = SmallShuffle.application(application);
        return daemon.next(Frames.OPEN, h -> h.flow().equals(flow) && h.kind() == kind);
    }

    @Test
    void severalOutputsOnOneConnectionAtAStumblingPace() throws Exception {
        try (Reducer reducer = new Reducer()) {
            FutureTask<Void> fetches = new FutureTask<>(() -> {
                reducer.ask(1, 0, 1, 2, 3, 4);
                reducer.all();
                reducer.ask(2, 4, 0); // on the same connection, which is kept alive
                reducer.all();
                return null;
            });
            new Thread(fetches, "reducer").start();
            Map<Integer, Heard> opens = new HashMap<>();
            Map<Integer, Long> marks = new HashMap<>();
            List<Heard> ends = new ArrayList<>();
            Random random = new Random();
            while (!fetches.isDone() || ends.size() < opens.size()) {
                for (Heard h : daemon.heard()) {
                    if (h.type() == Frames.OPEN) {
                        opens.put(h.stream(), h);
                        marks.put(h.stream(), h.from());
                    } else if (h.type() == Frames.CLOSE) {
                        ends.add(h);
                        marks.remove(h.stream());
                    }
                }
                for (Map.Entry<Integer, Long> m : marks.entrySet()) {
                    m.setValue(Math.min(opens.get(m.getKey()).to(), m.getValue() + random.nextInt(300_000)));
                    daemon.mark(m.getKey(), m.getValue());
                }
                Thread.sleep(1);
            }
            fetches.get();
            assertEquals(14, opens.size());
            String client = "127.0.0.1:" + reducer.socket.getLocalPort();
            for (Heard e : ends) {
                Heard o = opens.get(e.stream());
                assertFalse(e.failed());
                assertEquals(o.to(), e.position());
                assertEquals(client, o.peer().client);
                assertEquals("127.0.0.1:" + port, o.peer().server);
                assertTrue(o.block().startsWith(local + "/usercache/") && o.block().endsWith("/file.out"), o.block());
                boolean sends = o.kind() == Frames.NETWORK;
                assertEquals(sends, o.write());
                assertEquals(sends ? 0 : 777, o.from());
            }
        }
        sound();
    }

    @Test
    void oneIsHeldAtItsMarkAndAnotherGoes() throws Exception {
        try (Reducer held = new Reducer(); Reducer other = new Reducer()) {
            held.ask(1, 0, 4);
            Heard disk = opened(1, Frames.INTERMEDIATE);
            assertEquals(777, disk.from());
            assertEquals(777 + SIZE, disk.to());
            held.head();
            int header = outputs.get(attempt(1, 0)).length - SIZE;
            held.read(0, header);
            held.nothing(); // not staged
            Heard network = opened(1, Frames.NETWORK);
            assertEquals(0, network.from());
            assertEquals(SIZE, network.to());
            daemon.mark(disk.stream(), Long.MAX_VALUE);
            long[] before = seen();
            held.nothing(); // staged, but not yet allowed to be sent
            long[] after = seen();
            assertTrue(after[0] > before[0], "the thread was not looked at");
            assertEquals(before[1], after[1], "the event loop's thread was parked");
            int mark = 400_000;
            daemon.mark(network.stream(), mark);
            held.read(header, header + mark);
            daemon.next(Frames.PROGRESS, h -> h.stream() == network.stream() && h.position() == mark);
            held.nothing();

            long start = System.nanoTime();
            other.ask(2, 0, 1);
            for (int i = 0; i < 2; i++) {
                for (int j = 0; j < 2; j++) {
                    Heard h = daemon.next(Frames.OPEN, o -> o.flow().equals(SmallShuffle.application(2)));
                    daemon.mark(h.stream(), Long.MAX_VALUE);
                }
            }
            other.all();
            assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(10), "it was delayed by the held one");
            held.nothing();

            daemon.generous = true; // for the second output
            daemon.mark(network.stream(), Long.MAX_VALUE);
            held.read(header + mark, held.expected.size());
        }
        sound();
    }

    @Test
    void theReducerGoesWhileItsOutputIsHeld() throws Exception {
        Heard disk;
        try (Reducer held = new Reducer()) {
            held.ask(1, 0, 1, 2);
            disk = opened(1, Frames.INTERMEDIATE);
            held.head();
        }
        int of = disk.stream();
        Heard end = daemon.next(Frames.CLOSE, h -> h.stream() == of);
        assertTrue(end.failed());
        assertEquals(777, end.position());
        sound();
        try (Reducer next = new Reducer()) {
            daemon.generous = true;
            next.ask(1, 0, 1, 2);
            next.all();
        }
        sound();
    }

    @Test
    void aDaemonThatIsGoneHoldsNothing() throws Exception {
        try (Reducer silent = new Reducer(); Reducer gone = new Reducer()) {
            silent.ask(1, 0, 1);
            opened(1, Frames.INTERMEDIATE);
            silent.head();
            silent.read(0, 1);
            daemon.beating = false;
            silent.read(1, silent.expected.size()); // the backstop would be 20 s for each output
            assertTrue(System.nanoTime() - daemon.lastBeat < TimeUnit.SECONDS.toNanos(5));

            daemon.beating = true;
            gone.ask(2, 0, 1);
            opened(2, Frames.INTERMEDIATE);
            gone.head();
            gone.read(0, 1);
            long start = System.nanoTime();
            daemon.close();
            gone.read(1, gone.expected.size());
            assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(5));
        }
        try (Reducer without = new Reducer()) {
            without.ask(3, 0, 1, 2, 3, 4);
            without.all();
        }
        sound();
    }
}
