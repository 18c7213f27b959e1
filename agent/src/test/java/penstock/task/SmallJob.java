package penstock.task;

import java.io.File;
import java.io.IOException;
import java.util.Iterator;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapred.FileInputFormat;
import org.apache.hadoop.mapred.FileOutputFormat;
import org.apache.hadoop.mapred.JobClient;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.MapReduceBase;
import org.apache.hadoop.mapred.OutputCollector;
import org.apache.hadoop.mapred.Reducer;
import org.apache.hadoop.mapred.Reporter;
import org.apache.hadoop.mapred.RunningJob;
import org.apache.hadoop.mapred.TextInputFormat;
import org.apache.hadoop.mapred.lib.IdentityMapper;
import penstock.core.Values;

/**
 * The main class of a JVM that runs MapReduce's own map and reduce tasks, one after the other, with a sort buffer so
 * small that maps spill and merge several times, and a reducer that fetches to disk. They use local files as in a
 * container's JVM.
 */
public final class SmallJob {
    private SmallJob() { }

    /** Writes the values again, so that the output is the sorted input. */
    public static final class Values extends MapReduceBase implements Reducer<LongWritable, Text, Text, Text> {
        @Override
        public void reduce(LongWritable key, Iterator<Text> values, OutputCollector<Text, Text> out,
                Reporter reporter) throws IOException {
            while (values.hasNext()) {
                out.collect(values.next(), null);
            }
        }
    }

    /** Takes the input, the output, the local directory and the socket; prints the counters of local files. */
    public static void main(String[] args) throws Exception {
        JobConf job = new JobConf(SmallJob.class);
        job.setClass("fs.file.impl", GovernedLocalFileSystem.class, FileSystem.class);
        job.set("penstock.socket", args[3]);
        job.set("fs.defaultFS", "file:///");
        job.set("mapreduce.framework.name", "local");
        job.set("mapreduce.cluster.local.dir", args[2] + "/mapred");
        job.set("mapreduce.jobtracker.staging.root.dir", new File(args[1]).getParent() + "/staging");
        job.set("hadoop.tmp.dir", new File(args[1]).getParent() + "/tmp");
        job.setInt("mapreduce.task.io.sort.mb", 1);
        job.setInt("mapreduce.task.io.sort.factor", 3);
        job.setFloat("mapreduce.reduce.shuffle.input.buffer.percent", 0.01f);
        job.setInt("mapreduce.reduce.shuffle.parallelcopies", 2);
        job.setInputFormat(TextInputFormat.class);
        job.setMapperClass(IdentityMapper.class);
        job.setReducerClass(Values.class);
        job.setNumReduceTasks(1);
        job.setMapOutputKeyClass(LongWritable.class);
        job.setMapOutputValueClass(Text.class);
        job.setOutputKeyClass(Text.class);
        job.setOutputValueClass(Text.class);
        FileInputFormat.setInputPaths(job, new Path(args[0]));
        FileOutputFormat.setOutputPath(job, new Path(args[1]));
        LocalFileSystem local = FileSystem.getLocal(job);
        System.out.println("file system " + local.getClass().getName() + " " + local.getRaw().getClass().getName());
        RunningJob running = JobClient.runJob(job);
        System.out.println("spilled " + running.getCounters().findCounter("org.apache.hadoop.mapreduce.TaskCounter",
                "SPILLED_RECORDS").getValue());
        System.out.println("read " + running.getCounters().findCounter("org.apache.hadoop.mapreduce.FileSystemCounter",
                "FILE_BYTES_READ").getValue());
        System.out.println("written " + running.getCounters().findCounter(
                "org.apache.hadoop.mapreduce.FileSystemCounter", "FILE_BYTES_WRITTEN").getValue());
    }
}
