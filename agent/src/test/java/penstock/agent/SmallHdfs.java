package penstock.agent;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import penstock.core.Status;

/** A NameNode and clients in this JVM, and a DataNode with the packed agent in another JVM. */
final class SmallHdfs implements AutoCloseable {
    private final Path directory;
    private final Configuration conf = new HdfsConfiguration();
    private final List<FileSystem> clients = new ArrayList<>();
    private NameNode nameNode;
    private Process dataNode;

    /**
     * Returns when the DataNode accepts blocks. The class path entry front comes before Hadoop on the DataNode's class
     * path.
     */
    SmallHdfs(Path directory, Path socket, List<String> front) throws Exception {
        this(directory, socket, front, false);
    }

    /**
     * @param tokens whether the DataNode requires block tokens
     */
    SmallHdfs(Path directory, Path socket, List<String> front, boolean tokens) throws Exception {
        this.directory = directory;
        conf.setBoolean("dfs.block.access.token.enable", tokens);
        try {
            start(socket, front);
        } catch (Exception | Error e) {
            close();
            throw e;
        }
    }

    private void start(Path socket, List<String> front) throws Exception {
        Path resources = directory.resolve("conf");
        Files.createDirectories(resources.resolve("webapps/datanode"));
        conf.set("fs.defaultFS", "hdfs://127.0.0.1:0");
        conf.set("hadoop.tmp.dir", directory.resolve("tmp").toString());
        conf.set("dfs.namenode.name.dir", directory.resolve("name").toString());
        conf.set("dfs.datanode.data.dir", "[DISK]" + directory.resolve("data").toUri());
        conf.set("dfs.namenode.http-address", "127.0.0.1:0");
        conf.set("dfs.datanode.address", "127.0.0.1:0");
        conf.set("dfs.datanode.http.address", "127.0.0.1:0");
        conf.set("dfs.datanode.ipc.address", "127.0.0.1:0");
        conf.setInt("dfs.replication", 1);
        conf.setInt("dfs.namenode.safemode.extension", 0);
        conf.setInt("dfs.heartbeat.interval", 1);
        DefaultMetricsSystem.setMiniClusterMode(true); // format() does not unregister its metrics sources
        NameNode.format(conf);
        nameNode = NameNode.createNameNode(new String[0], conf);
        conf.set("fs.defaultFS", "hdfs://127.0.0.1:" + nameNode.getNameNodeAddress().getPort());
        try (OutputStream out = Files.newOutputStream(resources.resolve("hdfs-site.xml"))) {
            conf.writeXml(out);
        }
        List<String> classPath = new ArrayList<>(front);
        classPath.add(resources.toString());
        classPath.addAll(hadoop());
        List<String> command = java(socket, classPath);
        command.add("org.apache.hadoop.hdfs.server.datanode.DataNode");
        dataNode = new ProcessBuilder(command).redirectErrorStream(true)
                .redirectOutput(directory.resolve("log").toFile()).start();
        DistributedFileSystem fs = client("");
        while (nameNode.isInSafeMode() || !reported(fs)) {
            check();
            Thread.sleep(50);
        }
    }

    /**
     * Returns Hadoop's jars and their dependencies from this JVM's class path. The agent must come from its own jar.
     */
    static List<String> hadoop() {
        List<String> jars = new ArrayList<>();
        for (String entry : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (entry.endsWith(".jar") && !entry.contains("byte-buddy") && !entry.contains("junit")) {
                jars.add(entry);
            }
        }
        return jars;
    }

    /** Returns the beginning of a command that starts a JVM with the agent, Hadoop's options and this class path. */
    static List<String> java(Path socket, List<String> classPath) {
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-javaagent:" + JarIT.JAR + "=socket=" + socket,
                "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
        for (String opened : "lang util io nio net util.concurrent".split(" ")) {
            command.add("--add-opens=java.base/java." + opened + "=ALL-UNNAMED");
        }
        command.addAll(List.of("-cp", String.join(File.pathSeparator, classPath)));
        return command;
    }

    /** Reports whether the NameNode knows the DataNode's free space, which the DataNode's first heartbeat reports. */
    private static boolean reported(DistributedFileSystem fs) throws IOException {
        DatanodeInfo[] nodes = fs.getDataNodeStats();
        return nodes.length == 1 && nodes[0].getRemaining() > 0;
    }

    /** Returns a new client, named after the task attempt unless attempt is empty. */
    DistributedFileSystem client(String attempt) throws IOException {
        Configuration own = new Configuration(conf);
        if (!attempt.isEmpty()) {
            own.set("mapreduce.task.attempt.id", attempt);
        }
        DistributedFileSystem fs = (DistributedFileSystem) FileSystem.newInstance(own);
        clients.add(fs);
        return fs;
    }

    static void write(FileSystem fs, String name, byte[] data) throws IOException {
        try (OutputStream out = fs.create(new org.apache.hadoop.fs.Path(name))) {
            out.write(data);
        }
    }

    static byte[] read(FileSystem fs, String name, int length) throws IOException {
        try (FSDataInputStream in = fs.open(new org.apache.hadoop.fs.Path(name))) {
            byte[] all = new byte[length];
            in.readFully(0, all);
            return all;
        }
    }

    /** Returns the stacks of the DataNode's threads, or why they could not be read. */
    String stacks() {
        try {
            Process p = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "jcmd").toString(),
                    Long.toString(dataNode.pid()), "Thread.print").redirectErrorStream(true).start();
            return "DataNode: " + new String(p.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException e) {
            return e.toString();
        }
    }

    Process dataNode() {
        return dataNode;
    }

    /** If the DataNode has ended, throws an error with the DataNode's log. */
    void check() {
        if (!dataNode.isAlive()) {
            throw new AssertionError("the DataNode has ended:\n" + log());
        }
    }

    /** Returns the DataNode's output, including standard error. */
    String log() {
        try {
            return Files.readString(directory.resolve("log"));
        } catch (IOException e) {
            return e.toString();
        }
    }

    /** Waits for the agent's MBean on the DataNode's own page, and returns it. */
    String bean() throws IOException {
        DatanodeInfo node = ((DistributedFileSystem) clients.get(0)).getDataNodeStats()[0];
        URI page = URI.create("http://127.0.0.1:" + node.getInfoPort() + "/jmx?qry=" + Status.NAME);
        while (true) {
            check();
            try (InputStream in = page.toURL().openStream()) {
                String bean = new String(in.readAllBytes(), StandardCharsets.UTF_8);
                if (bean.contains("\"State\"")) {
                    return bean;
                }
            }
        }
    }

    @Override
    public void close() throws IOException {
        for (FileSystem fs : clients) {
            fs.close();
        }
        if (dataNode != null) {
            dataNode.destroyForcibly().onExit().join();
        }
        if (nameNode != null) {
            nameNode.stop();
            nameNode.join();
        }
    }
}
