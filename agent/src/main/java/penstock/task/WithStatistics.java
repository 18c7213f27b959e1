package penstock.task;

import java.io.File;
import java.io.OutputStream;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsSource;
import org.apache.hadoop.fs.statistics.IOStatisticsSupport;
import penstock.core.Stream;

/**
 * Governed streams with Hadoop's statistics, which Hadoop has from 3.3 on. Where it lacks them, this class cannot be
 * linked. So its methods return types of Hadoop's, and are called only if {@link #NEEDED} exists.
 */
final class WithStatistics {
    /** A constant, which is copied to where it is used. */
    static final String NEEDED = "org.apache.hadoop.fs.statistics.IOStatisticsSource";

    private WithStatistics() { }

    static FSInputStream input(FSDataInputStream in, Container container, File file) {
        return new Input(in, container, file);
    }

    static OutputStream output(OutputStream out, Stream stream, long from) {
        return new Output(out, stream, from);
    }

    private static final class Input extends GovernedInput implements IOStatisticsSource {
        private final FSDataInputStream in;

        Input(FSDataInputStream in, Container container, File file) {
            super(in, container, file);
            this.in = in;
        }

        @Override
        public IOStatistics getIOStatistics() {
            return in.getIOStatistics();
        }
    }

    private static final class Output extends GovernedOutput implements IOStatisticsSource {
        private final OutputStream out;

        Output(OutputStream out, Stream stream, long from) {
            super(out, stream, from);
            this.out = out;
        }

        @Override
        public IOStatistics getIOStatistics() {
            return IOStatisticsSupport.retrieveIOStatistics(out);
        }
    }
}
