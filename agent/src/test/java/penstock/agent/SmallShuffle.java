package penstock.agent;

import java.io.BufferedReader;
import java.io.DataOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;
import java.net.URI;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import javax.crypto.SecretKey;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapred.IndexRecord;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.ShuffleHandler;
import org.apache.hadoop.mapred.SpillRecord;
import org.apache.hadoop.mapreduce.security.SecureShuffleUtils;
import org.apache.hadoop.mapreduce.security.token.JobTokenIdentifier;
import org.apache.hadoop.mapreduce.security.token.JobTokenSecretManager;
import org.apache.hadoop.mapreduce.task.reduce.ShuffleHeader;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.server.api.ApplicationInitializationContext;
import org.apache.hadoop.yarn.server.api.AuxiliaryLocalPathHandler;
import penstock.core.Status;

/** A NodeManager's ShuffleHandler in another JVM, and the work of a map and a reducer in the test's JVM. */
final class SmallShuffle {
    static final long STAMP = 1700000000000L;
    static final String USER = "someone";
    private static final byte[] SECRET = "a job's secret".getBytes(StandardCharsets.UTF_8);

    private SmallShuffle() { }

    /**
     * Serves applications 1 to 3 from the given local directory, with one event loop for all connections. Prints "port
     * N", and answers each line of its input.
     */
    public static void main(String[] arguments) throws Exception {
        Configuration conf = new Configuration();
        conf.set("yarn.nodemanager.local-dirs", arguments[0]);
        conf.setInt("mapreduce.shuffle.port", 0);
        conf.setInt("mapreduce.shuffle.max.threads", 1);
        conf.setBoolean("mapreduce.shuffle.connection-keep-alive.enable", true);
        ShuffleHandler handler = new ShuffleHandler();
        handler.setAuxiliaryLocalPathHandler(new Local(arguments[0]));
        handler.init(conf);
        handler.start();
        for (int i = 1; i <= 3; i++) {
            JobTokenIdentifier job = new JobTokenIdentifier(new Text("job_" + STAMP + "_000" + i));
            Token<JobTokenIdentifier> token = new Token<>(job.getBytes(), SECRET, job.getKind(), new Text("shuffle"));
            handler.initializeApplication(new ApplicationInitializationContext(USER,
                    ApplicationId.newInstance(STAMP, i), ShuffleHandler.serializeServiceData(token)));
        }
        Watch watch = new Watch();
        watch.start();
        System.out.println("port " + handler.getConfig().get("mapreduce.shuffle.port"));
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        ObjectName agent = new ObjectName(Status.NAME);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer = watch.toString();
            for (String name : new String[] {"State", "Mode", "StreamsOpen", "Suppressed", "ShuffleUngoverned"}) {
                answer += " " + name + "=" + (server.isRegistered(agent) ? server.getAttribute(agent, name) : "?");
            }
            System.out.println(answer);
        }
        System.exit(0);
    }

    /** Returns the NodeManager's only local directory. */
    private static final class Local implements AuxiliaryLocalPathHandler {
        private final String directory;

        Local(String directory) {
            this.directory = directory;
        }

        @Override
        public org.apache.hadoop.fs.Path getLocalPathForRead(String path) {
            return new org.apache.hadoop.fs.Path(directory, path);
        }

        @Override
        public org.apache.hadoop.fs.Path getLocalPathForWrite(String path) {
            return getLocalPathForRead(path);
        }

        @Override
        public org.apache.hadoop.fs.Path getLocalPathForWrite(String path, long size) {
            return getLocalPathForRead(path);
        }

        @Override
        public Iterable<org.apache.hadoop.fs.Path> getAllLocalPathsForRead(String path) {
            return List.of(getLocalPathForRead(path));
        }
    }

    /**
     * Examines netty's threads every millisecond, and counts threads that are parked, sleep or wait. The agent's code is
     * the cause if it is on the stack: Hadoop's own reading of an index also parks at times.
     */
    private static final class Watch extends Thread {
        private final ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        private volatile long looks;
        private volatile long stopped;
        private volatile long ours;
        private volatile String where = "";

        Watch() {
            setDaemon(true);
        }

        @Override
        public void run() {
            while (true) {
                for (ThreadInfo t : threads.dumpAllThreads(false, false)) {
                    // Netty 3 gives its threads names of its own.
                    if (t.getThreadName().startsWith("ShuffleHandler Netty Worker")
                            || t.getThreadName().startsWith("New I/O worker")) {
                        look(t);
                    }
                }
                try {
                    Thread.sleep(1);
                } catch (InterruptedException e) {
                    return;
                }
            }
        }

        private void look(ThreadInfo t) {
            looks++;
            if (t.getThreadState() != Thread.State.WAITING && t.getThreadState() != Thread.State.TIMED_WAITING) {
                return;
            }
            stopped++;
            for (StackTraceElement frame : t.getStackTrace()) {
                if (frame.getClassName().startsWith("penstock.")) {
                    ours++;
                    where = List.of(t.getStackTrace()).toString().replace(' ', '_');
                    return;
                }
            }
        }

        @Override
        public String toString() {
            return "Looks=" + looks + " Stopped=" + stopped + " Ours=" + ours + " Where=" + where;
        }
    }

    /** Writes a map's output of one partition; returns what a reducer gets of it. */
    static byte[] map(Path local, int application, String attempt, byte[] data) throws Exception {
        Path output = local.resolve("usercache/" + USER + "/appcache/application_" + STAMP + "_000" + application
                + "/output/" + attempt);
        Files.createDirectories(output);
        // The bytes before belong to another reducer, so no offset is 0.
        byte[] before = new byte[777];
        try (OutputStream out = Files.newOutputStream(output.resolve("file.out"))) {
            out.write(before);
            out.write(data);
        }
        SpillRecord index = new SpillRecord(2);
        index.putIndex(new IndexRecord(0, before.length, before.length), 0);
        index.putIndex(new IndexRecord(before.length, data.length, data.length), 1);
        index.writeToFile(new org.apache.hadoop.fs.Path(output.resolve("file.out.index").toString()), new JobConf());
        java.io.ByteArrayOutputStream sent = new java.io.ByteArrayOutputStream();
        new ShuffleHeader(attempt, data.length, data.length, 1).write(new DataOutputStream(sent));
        sent.writeBytes(data);
        return sent.toByteArray();
    }

    /** Returns a reducer's request for the second partition of these maps. */
    static String request(int port, int application, String... attempts) throws Exception {
        URL url = new URI("http://127.0.0.1:" + port + "/mapOutput?job=job_" + STAMP + "_000" + application
                + "&reduce=1&map=" + String.join(",", attempts) + "&keepAlive=true").toURL();
        SecretKey key = JobTokenSecretManager.createSecretKey(SECRET);
        String hash = SecureShuffleUtils.hashFromString(SecureShuffleUtils.buildMsgFrom(url), key);
        return "GET " + url.getFile() + " HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                + SecureShuffleUtils.HTTP_HEADER_URL_HASH + ": " + hash + "\r\n"
                + ShuffleHeader.HTTP_HEADER_NAME + ": " + ShuffleHeader.DEFAULT_HTTP_HEADER_NAME + "\r\n"
                + ShuffleHeader.HTTP_HEADER_VERSION + ": " + ShuffleHeader.DEFAULT_HTTP_HEADER_VERSION + "\r\n\r\n";
    }

    static String application(int number) {
        return "application_" + STAMP + "_000" + number;
    }
}
