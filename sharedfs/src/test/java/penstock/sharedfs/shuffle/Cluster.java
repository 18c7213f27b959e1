package penstock.sharedfs.shuffle;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import javax.crypto.SecretKey;
import javax.crypto.spec.SecretKeySpec;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.LocalDirAllocator;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.io.compress.CompressionCodec;
import org.apache.hadoop.mapred.Counters;
import org.apache.hadoop.mapred.IFile;
import org.apache.hadoop.mapred.IndexRecord;
import org.apache.hadoop.mapred.InputSplit;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.JobID;
import org.apache.hadoop.mapred.RawKeyValueIterator;
import org.apache.hadoop.mapred.ReduceTask;
import org.apache.hadoop.mapred.Reporter;
import org.apache.hadoop.mapred.ShuffleConsumerPlugin;
import org.apache.hadoop.mapred.SpillRecord;
import org.apache.hadoop.mapred.TaskAttemptID;
import org.apache.hadoop.mapred.TaskCompletionEvent;
import org.apache.hadoop.mapred.TaskCompletionEvent.Status;
import org.apache.hadoop.mapred.TaskID;
import org.apache.hadoop.mapred.TaskStatus;
import org.apache.hadoop.mapreduce.CryptoUtils;
import org.apache.hadoop.mapreduce.MRConfig;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.security.IntermediateEncryptedStream;
import org.apache.hadoop.util.Progress;
import penstock.sharedfs.TestMount;

/** Nodes, an application master, and one job of theirs; no processes. Map outputs are written by Hadoop's classes. */
final class Cluster implements AutoCloseable {
    static final JobID JOB = new JobID("200", 1);
    static final String APPLICATION = "application_200_0001";

    final Path shared = TestMount.create();
    final Master master = new Master();
    final List<Node> nodes = new ArrayList<>();
    final SecretKey key = new SecretKeySpec("a secret of the job".getBytes(), "HmacSHA1");
    final JobConf job;

    Cluster(int maps, int reduces) throws IOException {
        for (int i = 0; i < 3; i++) {
            nodes.add(new Node(shared, APPLICATION, i, key));
        }
        job = new JobConf(false);
        job.addResource("core-default.xml");
        job.addResource("mapred-default.xml");
        job.setNumMapTasks(maps);
        job.setNumReduceTasks(reduces);
        job.setMapOutputKeyClass(Text.class);
        job.setMapOutputValueClass(Text.class);
        job.setStrings(MRConfig.LOCAL_DIR, nodes.get(0).local(0).toString(), nodes.get(0).local(1).toString());
        job.setStrings(Places.DIRS, shared + "/{host}/disk0", shared + "/{host}/disk1");
        job.set(SharedShuffle.WAIT, "200ms");
        job.setInt("mapreduce.reduce.shuffle.parallelcopies", 2);
    }

    static TaskAttemptID map(int map, int attempt) {
        return new TaskAttemptID(new TaskID(JOB, TaskType.MAP, map), attempt);
    }

    static TaskAttemptID reduce(int reduce, int attempt) {
        return new TaskAttemptID(new TaskID(JOB, TaskType.REDUCE, reduce), attempt);
    }

    Node node(int map) {
        return nodes.get(map % nodes.size());
    }

    /** Writes a map attempt's output: for each reduce, these keys. The values name the attempt. */
    void write(TaskAttemptID attempt, CompressionCodec codec, List<List<String>> keys) throws IOException {
        Node node = node(attempt.getTaskID().getId());
        int volume = attempt.getTaskID().getId() % 2; // the index is in the other local directory
        FileSystem fs = FileSystem.getLocal(job).getRaw();
        org.apache.hadoop.fs.Path file =
            new org.apache.hadoop.fs.Path(node.file(volume, attempt, "file.out").toString());
        SpillRecord index = new SpillRecord(keys.size());
        try (FSDataOutputStream out = fs.create(file)) {
            for (int i = 0; i < keys.size(); i++) {
                long start = out.getPos();
                IFile.Writer<Text, Text> writer = new IFile.Writer<>(job,
                    IntermediateEncryptedStream.wrapIfNecessary(job, out, false, file), Text.class, Text.class, codec,
                    null);
                List<String> sorted = new ArrayList<>(keys.get(i));
                Collections.sort(sorted);
                for (String key : sorted) {
                    writer.append(new Text(key), new Text(attempt.toString()));
                }
                writer.close();
                long padding = CryptoUtils.cryptoPadding(job);
                index.putIndex(new IndexRecord(start, writer.getRawLength() + padding,
                    writer.getCompressedLength() + padding), i);
            }
        }
        Path indexFile = node.file(1 - volume, attempt, "file.out.index");
        index.writeToFile(new org.apache.hadoop.fs.Path(indexFile.toString()), job);
    }

    void event(TaskAttemptID attempt, Status status) {
        master.event(attempt, status, node(attempt.getTaskID().getId()).address());
    }

    int served() {
        return nodes.stream().mapToInt(n -> n.served.get()).sum();
    }

    /** A reduce that runs the plug-in only, with counters. */
    final class Reduce {
        final Counters counters = new Counters();
        final SharedShuffle<Text, Text> plugin = new SharedShuffle<>(10, 10);
        final TaskStatus status = new TaskStatus() {
            @Override
            public boolean getIsMap() {
                return false;
            }

            @Override
            public void addFetchFailedMap(TaskAttemptID map) {
                master.reported.add(map);
            }
        };
        final Progress task = new Progress();
        final Progress copy = task.addPhase("copy");
        final Progress sort = task.addPhase("sort");
        /** Runs when bytes have been read. */
        Runnable whenRead = () -> { };

        Reduce(TaskAttemptID id) throws IOException {
            this(id, null);
        }

        Reduce(TaskAttemptID id, CompressionCodec codec) throws IOException {
            task.addPhase("reduce");
            ReduceTask reduce = new ReduceTask("job.xml", id, id.getTaskID().getId(), job.getNumMapTasks(), 1);
            reduce.setConf(job);
            reduce.setShuffleSecret(key);
            LocalFileSystem local = FileSystem.getLocal(job);
            plugin.init(new ShuffleConsumerPlugin.Context<>(id, job, local, master.protocol(),
                new LocalDirAllocator(MRConfig.LOCAL_DIR), reporter(), codec, null, null, count("spilled"),
                count("combined"), count("shuffled"), count("bytes"), count("failed"), count("merged"), status, copy,
                sort, reduce, reduce.getMapOutputFile(), null));
        }

        Counters.Counter count(String name) {
            return counters.findCounter("test", name);
        }

        long own(String name) {
            return counters.findCounter(SharedShuffle.COUNTERS, name).getValue();
        }

        /** Returns all records as "key value", in the order of keys. */
        List<String> records() throws Exception {
            RawKeyValueIterator merged = plugin.run();
            List<String> records = new ArrayList<>();
            String before = "";
            while (merged.next()) {
                Text key = new Text();
                Text value = new Text();
                key.readFields(merged.getKey());
                value.readFields(merged.getValue());
                if (before.compareTo(key.toString()) > 0) {
                    throw new AssertionError(key + " after " + before);
                }
                before = key.toString();
                records.add(key + " " + value);
            }
            plugin.close();
            Collections.sort(records);
            return records;
        }

        private Reporter reporter() {
            return new Reporter() {
                @Override
                public void setStatus(String text) { }

                @Override
                public Counters.Counter getCounter(Enum<?> name) {
                    return counters.findCounter(name);
                }

                @Override
                public Counters.Counter getCounter(String group, String name) {
                    return counters.findCounter(group, name);
                }

                @Override
                public void incrCounter(Enum<?> name, long amount) {
                    counters.incrCounter(name, amount);
                }

                @Override
                public void incrCounter(String group, String name, long amount) {
                    counters.incrCounter(group, name, amount);
                    whenRead.run();
                }

                @Override
                public InputSplit getInputSplit() {
                    throw new UnsupportedOperationException("a reduce has no split");
                }

                @Override
                public float getProgress() {
                    return task.get();
                }

                @Override
                public void progress() { }
            };
        }
    }

    @Override
    public void close() {
        nodes.forEach(Node::close);
        FileUtil.fullyDelete(shared.toFile());
    }

    /** Returns the descriptors that this process has open below the shared folder. */
    long open() {
        try (var links = Files.list(Path.of("/proc/self/fd"))) {
            return links.filter(link -> {
                try {
                    return Files.readSymbolicLink(link).startsWith(shared);
                } catch (IOException e) { // closed meanwhile
                    return false;
                }
            }).count();
        } catch (IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }
}
