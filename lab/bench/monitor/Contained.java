import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.mapred.JobConf;

/**
 * HDFS clients (Client) in a YARN container with Penstock's plug-in for tasks. The plug-in connects to
 * the daemon when the local file system is first used, and the daemon then knows whose container this is.
 */
public final class Contained {
    private Contained() { }

    public static void main(String[] argv) throws Exception {
        JobConf conf = new JobConf(); // with the settings for tasks that penstock install has written
        conf.set("fs.file.impl", "penstock.task.GovernedLocalFileSystem");
        FileSystem.getLocal(conf);
        Class.forName("Client").getMethod("main", String[].class).invoke(null, (Object) argv);
    }
}
