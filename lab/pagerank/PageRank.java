import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.conf.Configured;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.Mapper;
import org.apache.hadoop.mapreduce.Reducer;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.input.KeyValueTextInputFormat;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

/**
 * One iteration of PageRank. Each line of input and output is a page: its number, its rank and the numbers of the pages
 * that it links to, as {@code PAGE\tRANK\tPAGE PAGE ...}. Arguments: input, output.
 *
 * <p>Ranks are whole millionths. So sums do not depend on the order in which a reduce gets its values, and all cases have
 * the same result.
 */
public final class PageRank extends Configured implements Tool {
  private static final long UNIT = 1_000_000;
  private static final long DAMPING_PERCENT = 85;

  /** Divides a page's rank among its links, and passes the links on. */
  public static final class Divide extends Mapper<Text, Text, LongWritable, Text> {
    private final LongWritable page = new LongWritable();
    private final Text out = new Text();

    @Override
    protected void map(Text from, Text line, Context context) throws IOException, InterruptedException {
      String text = line.toString();
      int tab = text.indexOf('\t');
      if (tab < 0) {
        throw new IOException("page " + from + " has no links: " + text);
      }
      page.set(Long.parseLong(from.toString()));
      out.set(text.substring(tab)); // a value that begins with a tab is the links
      context.write(page, out);
      String[] links = text.substring(tab + 1).split(" ");
      long all = Long.parseLong(text.substring(0, tab)) * DAMPING_PERCENT / 100;
      long each = all / links.length;
      long rest = all % links.length;
      for (int i = 0; i < links.length; i++) {
        page.set(Long.parseLong(links[i]));
        out.set(Long.toString(i < rest ? each + 1 : each));
        context.write(page, out);
      }
    }
  }

  /** Adds up what a page's rank gets. */
  public static final class Add extends Reducer<LongWritable, Text, LongWritable, Text> {
    private final Text out = new Text();

    @Override
    protected void reduce(LongWritable page, Iterable<Text> values, Context context) throws IOException, InterruptedException {
      long rank = UNIT * (100 - DAMPING_PERCENT) / 100;
      String links = null;
      for (Text value : values) {
        if (value.charAt(0) == '\t') {
          links = value.toString();
        } else {
          rank += Long.parseLong(value.toString());
        }
      }
      if (links == null) {
        throw new IOException("page " + page + " is not in the input");
      }
      out.set(rank + links);
      context.write(page, out);
    }
  }

  @Override
  public int run(String[] args) throws Exception {
    Job job = Job.getInstance(getConf(), "PageRank");
    job.setInputFormatClass(KeyValueTextInputFormat.class);
    job.setMapperClass(Divide.class);
    job.setReducerClass(Add.class);
    job.setOutputKeyClass(LongWritable.class);
    job.setOutputValueClass(Text.class);
    FileInputFormat.addInputPath(job, new Path(args[0]));
    FileOutputFormat.setOutputPath(job, new Path(args[1]));
    return job.waitForCompletion(true) ? 0 : 1;
  }

  public static void main(String[] args) throws Exception {
    System.exit(ToolRunner.run(new Configuration(), new PageRank(), args));
  }
}
