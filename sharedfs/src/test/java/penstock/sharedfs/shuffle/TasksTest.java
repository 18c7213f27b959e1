package penstock.sharedfs.shuffle;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.io.IntWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.MapOutputFile;
import org.apache.hadoop.mapred.MapTask;
import org.apache.hadoop.mapred.ReduceTask;
import org.apache.hadoop.mapred.ShuffleConsumerPlugin;
import org.apache.hadoop.mapred.Task;
import org.apache.hadoop.mapred.TaskAttemptID;
import org.apache.hadoop.mapred.TaskCompletionEvent.Status;
import org.apache.hadoop.mapred.YarnOutputFiles;
import org.apache.hadoop.mapreduce.Counter;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.MRConfig;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.TaskCounter;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.input.TextInputFormat;
import org.apache.hadoop.mapreduce.lib.map.TokenCounterMapper;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.mapreduce.lib.reduce.IntSumReducer;
import org.apache.hadoop.mapreduce.split.JobSplit;
import org.apache.hadoop.mapreduce.split.JobSplitWriter;
import org.apache.hadoop.mapreduce.split.SplitMetaInfoReader;
import org.apache.hadoop.util.Progress;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Hadoop's own map and reduce tasks, one after the other in this JVM, with files where YARN's tasks have them. */
class TasksTest {
    private static final int MAPS = 4;
    private Cluster cluster;
    private Job job;
    private final Map<String, Integer> expected = new TreeMap<>();

    @BeforeEach
    void open() throws IOException {
        cluster = new Cluster(MAPS, 2);
        JobConf conf = cluster.job;
        conf.set("fs.defaultFS", "file:///");
        conf.set("hadoop.tmp.dir", cluster.shared.toString());
        conf.setInt(MRJobConfig.IO_SORT_MB, 1); // so that maps spill several times
        conf.setClass(MRConfig.SHUFFLE_CONSUMER_PLUGIN, SharedShuffle.class, ShuffleConsumerPlugin.class);
        job = Job.getInstance(conf);
        job.setMapperClass(TokenCounterMapper.class);
        job.setCombinerClass(IntSumReducer.class);
        job.setReducerClass(IntSumReducer.class);
        job.setOutputKeyClass(Text.class);
        job.setOutputValueClass(IntWritable.class);
        job.setMapOutputValueClass(IntWritable.class);
        job.getConfiguration().setBoolean("mapred.mapper.new-api", true);
        job.getConfiguration().setBoolean("mapred.reducer.new-api", true);
        Path in = Files.createDirectories(cluster.shared.resolve("in"));
        for (int map = 0; map < MAPS; map++) {
            StringBuilder text = new StringBuilder();
            for (int i = 0; i < 30_000; i++) {
                String word = "word" + i * (map + 1) % 9973;
                text.append(word).append(i % 10 == 9 ? '\n' : ' ');
                expected.merge(word, 1, Integer::sum);
            }
            Files.writeString(in.resolve("file" + map), text);
        }
        FileInputFormat.addInputPath(job, new org.apache.hadoop.fs.Path(in.toString()));
        FileOutputFormat.setOutputPath(job, new org.apache.hadoop.fs.Path(cluster.shared.resolve("out").toString()));
    }

    @AfterEach
    void close() {
        cluster.close();
    }

    private JobSplit.TaskSplitMetaInfo[] splits() throws Exception {
        org.apache.hadoop.fs.Path folder = new org.apache.hadoop.fs.Path(cluster.shared.resolve("staging").toString());
        Configuration conf = job.getConfiguration();
        List<InputSplit> splits = new TextInputFormat().getSplits(job);
        assertEquals(MAPS, splits.size());
        JobSplitWriter.createSplitFiles(folder, conf, FileSystem.get(conf), splits.toArray(new InputSplit[0]));
        return SplitMetaInfoReader.readSplitMetaInfo(Cluster.JOB, FileSystem.get(conf), conf, folder);
    }

    /** Gives the task the local directories of a node. */
    private JobConf localized(Task task, Node node) throws IOException {
        JobConf conf = new JobConf(job.getConfiguration());
        conf.setStrings(MRConfig.LOCAL_DIR, node.local(0).toString(), node.local(1).toString());
        conf.setClass(MRConfig.TASK_LOCAL_OUTPUT_CLASS, YarnOutputFiles.class, MapOutputFile.class);
        task.localizeConfiguration(conf);
        task.setConf(conf);
        return conf;
    }

    private void map(TaskAttemptID attempt, JobSplit.TaskSplitMetaInfo split) throws Exception {
        MapTask task = new MapTask("job.xml", attempt, attempt.getTaskID().getId(), split.getSplitIndex(), 1);
        task.run(localized(task, cluster.node(attempt.getTaskID().getId())), cluster.master.protocol());
        cluster.event(attempt, Status.SUCCEEDED);
    }

    private ReduceTask reduce(int reduce, int attempt) throws Exception {
        ReduceTask task = new ReduceTask("job.xml", Cluster.reduce(reduce, attempt), reduce, MAPS, 1);
        task.setShuffleSecret(cluster.key);
        task.run(localized(task, cluster.node(reduce)), cluster.master.protocol());
        Progress progress = task.getProgress();
        assertEquals(1, progress.get());
        return task;
    }

    /** Returns the words that the reduces counted, without those of attempts that failed. */
    private Map<String, Integer> counted() throws IOException {
        List<Path> parts;
        try (Stream<Path> files = Files.walk(cluster.shared.resolve("out"))) {
            parts = files.filter(f -> f.getFileName().toString().startsWith("part-") && !f.toString().contains("/attempt_"))
                .toList();
        }
        Map<String, Integer> words = new TreeMap<>();
        for (Path part : parts) {
            for (String line : Files.readAllLines(part)) {
                String[] fields = line.split("\t");
                assertEquals(null, words.put(fields[0], Integer.parseInt(fields[1])));
            }
        }
        return words;
    }

    private static long count(ReduceTask task, TaskCounter counter) throws Exception {
        return counters(task).findCounter(counter).getValue();
    }

    /** The task's counters are visible in its own package only. */
    private static org.apache.hadoop.mapred.Counters counters(Task task) throws Exception {
        java.lang.reflect.Method counters = Task.class.getDeclaredMethod("getCounters");
        counters.setAccessible(true);
        return (org.apache.hadoop.mapred.Counters) counters.invoke(task);
    }

    private static long own(ReduceTask task, String name) throws Exception {
        Counter counter = counters(task).findCounter(SharedShuffle.COUNTERS, name);
        return counter.getValue();
    }

    @ParameterizedTest
    @CsvSource({"false", "true"})
    void aJob(boolean compressed) throws Exception {
        job.getConfiguration().setBoolean(MRJobConfig.MAP_OUTPUT_COMPRESS, compressed);
        JobSplit.TaskSplitMetaInfo[] splits = splits();
        for (int map = 0; map < MAPS; map++) {
            map(Cluster.map(map, 0), splits[map]);
        }
        for (int reduce = 0; reduce < 2; reduce++) {
            ReduceTask task = reduce(reduce, 0);
            assertEquals(MAPS, own(task, SharedShuffle.OUTPUTS));
            assertEquals(0, own(task, SharedShuffle.FALLBACKS));
            assertEquals(MAPS, count(task, TaskCounter.SHUFFLED_MAPS));
            assertEquals(MAPS, count(task, TaskCounter.MERGED_MAP_OUTPUTS));
            assertEquals(own(task, SharedShuffle.BYTES), count(task, TaskCounter.REDUCE_SHUFFLE_BYTES));
            assertTrue(own(task, SharedShuffle.BYTES) > 1000);
            assertEquals(0, count(task, TaskCounter.SPILLED_RECORDS));
        }
        assertEquals(expected, counted());
        assertEquals(0, cluster.served());
        assertEquals(0, cluster.open());
    }

    /**
     * One map output is damaged. The first attempt of the reduce finds it late and fails. The second one uses Hadoop's
     * shuffle, which reports it, so that the map runs again.
     */
    @Test
    void aDamagedOutput() throws Exception {
        JobSplit.TaskSplitMetaInfo[] splits = splits();
        for (int map = 0; map < MAPS; map++) {
            map(Cluster.map(map, 0), splits[map]);
        }
        List<Path> outputs = new ArrayList<>();
        for (int volume = 0; volume < 2; volume++) {
            Path file = cluster.node(2).file(volume, Cluster.map(2, 0), "file.out");
            if (Files.exists(file)) {
                outputs.add(file);
            }
        }
        assertEquals(1, outputs.size());
        Node.change(outputs.get(0), b -> {
            b[b.length / 4] ^= 1;
            b[b.length * 3 / 4] ^= 1;
            return b;
        });
        assertThrows(Exception.class, () -> reduce(0, 0));
        assertEquals(0, cluster.served());
        cluster.master.whenReported = damaged -> {
            try {
                cluster.event(damaged, Status.OBSOLETE);
                map(Cluster.map(damaged.getTaskID().getId(), 1), splits[damaged.getTaskID().getId()]);
            } catch (Exception e) {
                throw new AssertionError(e);
            }
        };
        ReduceTask second = reduce(0, 1);
        assertEquals(1, own(second, SharedShuffle.FALLBACKS));
        assertEquals(java.util.Set.of(Cluster.map(2, 0)), cluster.master.reported);
        assertEquals(0, own(reduce(1, 0), SharedShuffle.FALLBACKS)); // reads the new attempt's output in place
        assertEquals(expected, counted());
    }
}
