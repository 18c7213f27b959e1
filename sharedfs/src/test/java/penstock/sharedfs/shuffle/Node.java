package penstock.sharedfs.shuffle;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import javax.crypto.SecretKey;
import org.apache.hadoop.mapred.IndexRecord;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.SpillRecord;
import org.apache.hadoop.mapreduce.security.SecureShuffleUtils;
import org.apache.hadoop.mapreduce.task.reduce.ShuffleHeader;

/**
 * A node with two local directories on the "shared" file system, a folder, and with a server that speaks the protocol of
 * Hadoop's ShuffleHandler.
 */
final class Node implements AutoCloseable {
    final String host;
    private final Path shared;
    private final String application;
    private final SecretKey key;
    private final HttpServer server;
    private final ExecutorService threads = Executors.newCachedThreadPool();
    /** Is done before the server answers. */
    volatile Action before = () -> { };
    /** How many map outputs were asked for through the server. */
    final AtomicInteger served = new AtomicInteger();

    /** Something that may fail. */
    interface Action {
        void run() throws IOException;
    }

    Node(Path shared, String application, int number, SecretKey key) throws IOException {
        this.shared = shared;
        this.application = application;
        this.key = key;
        host = "127.0.0." + (number + 1);
        server = HttpServer.create(new InetSocketAddress(InetAddress.getByName(host), 0), 0);
        server.createContext("/mapOutput", this::answer);
        server.setExecutor(threads);
        server.start();
        for (int volume = 0; volume < 2; volume++) {
            Files.createDirectories(local(volume));
        }
    }

    /** Returns the application's local directory, as YARN's containers see it. */
    Path local(int volume) {
        return shared.resolve(host).resolve("disk" + volume).resolve("usercache/alice/appcache").resolve(application);
    }

    Path file(int volume, Object attempt, String name) {
        return local(volume).resolve("output").resolve(attempt.toString()).resolve(name);
    }

    String address() {
        return "http://" + host + ":" + server.getAddress().getPort();
    }

    private Path find(String attempt, String name) throws IOException {
        for (int volume = 0; volume < 2; volume++) {
            if (Files.exists(file(volume, attempt, name))) {
                return file(volume, attempt, name);
            }
        }
        throw new IOException("no " + name + " of " + attempt);
    }

    private void answer(HttpExchange exchange) throws IOException {
        try (exchange) {
            synchronized (this) {
                before.run();
            }
            String query = exchange.getRequestURI().getQuery();
            int reduce = Integer.parseInt(query.replaceAll(".*reduce=([0-9]+).*", "$1"));
            String hash = exchange.getRequestHeaders().getFirst(SecureShuffleUtils.HTTP_HEADER_URL_HASH);
            exchange.getResponseHeaders().set(SecureShuffleUtils.HTTP_HEADER_REPLY_URL_HASH,
                SecureShuffleUtils.generateHash(hash.getBytes(StandardCharsets.UTF_8), key));
            exchange.getResponseHeaders().set(ShuffleHeader.HTTP_HEADER_NAME, ShuffleHeader.DEFAULT_HTTP_HEADER_NAME);
            exchange.getResponseHeaders().set(ShuffleHeader.HTTP_HEADER_VERSION,
                ShuffleHeader.DEFAULT_HTTP_HEADER_VERSION);
            exchange.sendResponseHeaders(200, 0);
            DataOutputStream out = new DataOutputStream(exchange.getResponseBody());
            for (String attempt : List.of(query.replaceAll(".*map=", "").split(","))) {
                served.incrementAndGet();
                send(attempt, reduce, out);
            }
        }
    }

    /** Sends a map output; of one that cannot be read, only the beginning, as when a disk breaks. */
    private void send(String attempt, int reduce, DataOutputStream out) throws IOException {
        try (RandomAccessFile file = new RandomAccessFile(find(attempt, "file.out").toFile(), "r")) {
            IndexRecord record = new SpillRecord(
                new org.apache.hadoop.fs.Path(find(attempt, "file.out.index").toString()), new JobConf(false))
                .getIndex(reduce);
            byte[] bytes = new byte[(int) record.partLength];
            file.seek(record.startOffset);
            file.readFully(bytes);
            new ShuffleHeader(attempt, record.partLength, record.rawLength, reduce).write(out);
            out.write(bytes);
        } catch (IOException e) {
            new ShuffleHeader(attempt, 1000, 1000, reduce).write(out);
            out.flush();
            throw e;
        }
    }

    @Override
    public void close() {
        server.stop(0);
        threads.shutdownNow();
    }

    /** Damages a file. */
    static void change(Path file, java.util.function.UnaryOperator<byte[]> how) {
        try {
            Files.write(file, how.apply(Files.readAllBytes(file)));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
