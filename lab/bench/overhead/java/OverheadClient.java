import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.examples.terasort.TeraGen;
import org.apache.hadoop.examples.terasort.TeraSort;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.util.ToolRunner;

/**
 * The load for the measurement of overhead, in one JVM that stays warm. The load consists of streams of Hadoop's own
 * client under the name of a task, and of MapReduce jobs that run in this JVM (LocalJobRunner). So a job's run time
 * does not include the start of JVMs.
 *
 * <p>A line on standard input is an id and {@code write PATH BYTES RATE}, {@code read PATH RATE},
 * {@code teragen PATH ROWS} or {@code terasort FROM TO}. RATE is in bytes per second; 0 means full speed. The answer is
 * the id and {@code done NANOSECONDS BYTES} or {@code error TEXT} (package lab/client). The end of input ends the
 * process. The only argument is a folder for the jobs' intermediate files.
 */
public final class OverheadClient {
    /** A packet of HDFS. */
    private static final int STEP = 64 << 10;
    private static final byte[] BUFFER = new byte[STEP];

    private OverheadClient() { }

    public static void main(String[] argv) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // a library's output is not an answer
        new Random(1).nextBytes(BUFFER);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            String answer;
            try {
                long begun = System.nanoTime();
                long bytes = perform(words, argv[0]);
                answer = "done " + (System.nanoTime() - begun) + " " + bytes;
            } catch (Throwable t) {
                t.printStackTrace();
                answer = "error " + String.valueOf(t).replaceAll("\\s+", " ");
            }
            out.println(words[0] + " " + answer);
            out.flush();
        }
        System.exit(0);
    }

    private static long perform(String[] words, String local) throws Exception {
        Configuration conf = new Configuration();
        conf.set("mapreduce.framework.name", "local");
        conf.set("mapreduce.cluster.local.dir", local + "/mapred");
        conf.set("mapreduce.jobtracker.staging.root.dir", local + "/staging");
        conf.setInt("mapreduce.job.maps", 2);
        conf.setInt("mapreduce.job.reduces", 2);
        conf.setInt("mapreduce.local.map.tasks.maximum", 2);
        conf.setInt("mapreduce.local.reduce.tasks.maximum", 2);
        conf.setFloat("mapreduce.reduce.shuffle.input.buffer.percent", 0.2f); // of a heap that all tasks share
        // Short polls, so that a job's end is noticed at once.
        conf.setInt("mapreduce.client.progressmonitor.pollinterval", 10);
        conf.setInt("mapreduce.client.completion.pollinterval", 10);
        switch (words[1]) {
            case "write":
                return write(conf, new Path(words[2]), Long.parseLong(words[3]), new Pace(Long.parseLong(words[4])));
            case "read":
                return read(conf, new Path(words[2]), new Pace(Long.parseLong(words[3])));
            case "teragen":
                job(ToolRunner.run(conf, new TeraGen(), new String[] {words[3], words[2]}), "TeraGen");
                return 100 * Long.parseLong(words[3]);
            case "terasort":
                job(ToolRunner.run(conf, new TeraSort(), new String[] {words[2], words[3]}), "TeraSort");
                return FileSystem.get(conf).getContentSummary(new Path(words[2])).getLength();
            default:
                throw new IllegalArgumentException("no such command: " + words[1]);
        }
    }

    private static void job(int code, String name) {
        if (code != 0) {
            throw new IllegalStateException(name + " failed with code " + code + "; its messages are in the client's log");
        }
    }

    private static FileSystem task(Configuration conf) throws Exception {
        conf.set("mapreduce.task.attempt.id", "attempt_1700000000000_0001_m_000000_0");
        return FileSystem.newInstance(FileSystem.getDefaultUri(conf), conf);
    }

    /** Holds a stream to a rate, packet by packet, as a disk or a network would. */
    private static final class Pace {
        private final long rate;
        private final long begun = System.nanoTime();

        Pace(long rate) {
            this.rate = rate;
        }

        void reach(long bytes) {
            if (rate > 0) {
                long due = begun + (long) (1e9 * bytes / rate);
                for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                    LockSupport.parkNanos(left);
                }
            }
        }
    }

    private static long write(Configuration conf, Path path, long bytes, Pace pace) throws Exception {
        try (FileSystem fs = task(conf); FSDataOutputStream out = fs.create(path, false)) {
            for (long done = 0; done < bytes; done += STEP) {
                pace.reach(done);
                out.write(BUFFER, 0, (int) Math.min(STEP, bytes - done));
            }
        }
        return bytes;
    }

    private static long read(Configuration conf, Path path, Pace pace) throws Exception {
        byte[] into = new byte[STEP];
        long bytes = 0;
        try (FileSystem fs = task(conf); FSDataInputStream in = fs.open(path)) {
            for (int n = in.read(into); n >= 0; n = in.read(into)) {
                bytes += n;
                pace.reach(bytes);
            }
        }
        return bytes;
    }
}
