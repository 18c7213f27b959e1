package penstock.sharedfs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.io.IntWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapred.ShuffleConsumerPlugin;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.MRConfig;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.map.TokenCounterMapper;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.mapreduce.lib.reduce.IntSumReducer;
import org.apache.hadoop.mapreduce.task.reduce.Shuffle;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import penstock.sharedfs.shuffle.SharedShuffle;

/** A MapReduce job whose default file system is shared:, in this JVM. */
class JobTest {
    /** With the shuffle in place, too: a job in one process knows where its files are, so Hadoop's shuffle reads them. */
    @ParameterizedTest
    @ValueSource(classes = {Shuffle.class, SharedShuffle.class})
    void words(Class<? extends ShuffleConsumerPlugin<?, ?>> shuffle) throws Exception {
        FileSystem.closeAll(); // Hadoop remembers the one over the folder of another test
        Configuration conf = TestMount.configuration();
        conf.setClass(MRConfig.SHUFFLE_CONSUMER_PLUGIN, shuffle, ShuffleConsumerPlugin.class);
        conf.set("hadoop.tmp.dir", TestMount.create().toString());
        Path mount = Path.of(conf.get(SharedFileSystem.MOUNT));
        Files.createDirectories(mount.resolve("in"));
        for (int i = 0; i < 3; i++) {
            Files.writeString(mount.resolve("in/" + i), "one two\ntwo\n");
        }
        Job job = Job.getInstance(conf);
        job.setMapperClass(TokenCounterMapper.class);
        job.setCombinerClass(IntSumReducer.class);
        job.setReducerClass(IntSumReducer.class);
        job.setOutputKeyClass(Text.class);
        job.setOutputValueClass(IntWritable.class);
        job.setNumReduceTasks(2);
        FileInputFormat.addInputPath(job, new org.apache.hadoop.fs.Path("/in"));
        FileOutputFormat.setOutputPath(job, new org.apache.hadoop.fs.Path("/out"));
        assertTrue(job.waitForCompletion(false));
        assertEquals(0, job.getCounters().findCounter(SharedShuffle.COUNTERS, SharedShuffle.FALLBACKS).getValue());
        assertEquals(List.of("_SUCCESS", "part-r-00000", "part-r-00001"), names(mount.resolve("out")));
        List<String> lines = new ArrayList<>(Files.readAllLines(mount.resolve("out/part-r-00000")));
        lines.addAll(Files.readAllLines(mount.resolve("out/part-r-00001")));
        lines.sort(null);
        assertEquals(List.of("one\t3", "two\t6"), lines);
    }

    private static List<String> names(Path folder) throws IOException {
        try (Stream<Path> files = Files.list(folder)) {
            return files.map(f -> f.getFileName().toString()).sorted().toList();
        }
    }
}
