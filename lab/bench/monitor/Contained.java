import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.mapred.JobConf;

/**
 * Runs an HDFS client (Client) in a YARN container with Penstock's plug-in for tasks. The plug-in connects
 * to the daemon when the local file system is first used. The daemon then knows the application of the
 * container.
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
