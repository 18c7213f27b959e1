package penstock.tez;

import java.util.EnumSet;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.NullWritable;
import org.apache.tez.client.TezClient;
import org.apache.tez.common.counters.TaskCounter;
import org.apache.tez.dag.api.DAG;
import org.apache.tez.dag.api.Edge;
import org.apache.tez.dag.api.ProcessorDescriptor;
import org.apache.tez.dag.api.TezConfiguration;
import org.apache.tez.dag.api.Vertex;
import org.apache.tez.dag.api.client.DAGStatus;
import org.apache.tez.dag.api.client.StatusGetOpts;
import org.apache.tez.runtime.api.ProcessorContext;
import org.apache.tez.runtime.library.api.KeyValueWriter;
import org.apache.tez.runtime.library.api.KeyValuesReader;
import org.apache.tez.runtime.library.conf.OrderedPartitionedKVEdgeConfig;
import org.apache.tez.runtime.library.partitioner.HashPartitioner;
import org.apache.tez.runtime.library.processor.SimpleProcessor;
import penstock.task.GovernedLocalFileSystem;

/**
 * The main class of a JVM that runs a graph of Tez: two tasks write random records, with a sort buffer so small that they
 * spill and merge, and two tasks read them in their order. Master and tasks run in this JVM, with local files as in a
 * container's JVM.
 */
public final class SmallTez {
    private static final int TASKS = 2;
    private static final int RECORDS = 60_000; // of a task
    private static final int RECORD = 100; // bytes
    /** The size of all records. */
    static final long BYTES = (long) TASKS * RECORDS * RECORD;

    private static final AtomicLong READ = new AtomicLong();

    private SmallTez() { }

    /** Writes records. */
    public static final class Source extends SimpleProcessor {
        public Source(ProcessorContext context) {
            super(context);
        }

        @Override
        public void run() throws Exception {
            KeyValueWriter out = (KeyValueWriter) getOutputs().get("sink").getWriter();
            Random random = new Random(getContext().getTaskIndex());
            byte[] record = new byte[RECORD];
            for (int i = 0; i < RECORDS; i++) {
                random.nextBytes(record);
                out.write(new BytesWritable(record), NullWritable.get());
            }
        }
    }

    /** Reads records and checks their order. */
    public static final class Sink extends SimpleProcessor {
        public Sink(ProcessorContext context) {
            super(context);
        }

        @Override
        public void run() throws Exception {
            KeyValuesReader in = (KeyValuesReader) getInputs().get("source").getReader();
            byte[] last = null;
            while (in.next()) {
                BytesWritable key = (BytesWritable) in.getCurrentKey();
                if (last != null && new BytesWritable(last).compareTo(key) >= 0) {
                    throw new IllegalStateException("records are not in their order");
                }
                last = key.copyBytes();
                READ.addAndGet(key.getLength());
            }
        }
    }

    /** Takes the local directory and the socket; prints counters of bytes. */
    public static void main(String[] args) throws Exception {
        TezConfiguration conf = new TezConfiguration();
        conf.setClass("fs.file.impl", GovernedLocalFileSystem.class, FileSystem.class);
        conf.set("penstock.socket", args[1]);
        conf.set("fs.defaultFS", "file:///");
        conf.setBoolean(TezConfiguration.TEZ_LOCAL_MODE, true);
        conf.set(TezConfiguration.TEZ_AM_STAGING_DIR, args[0] + "/staging");
        conf.setBoolean("tez.runtime.optimize.local.fetch", true);
        conf.setInt("tez.runtime.io.sort.mb", 2);
        OrderedPartitionedKVEdgeConfig sorted = OrderedPartitionedKVEdgeConfig.newBuilder(
                BytesWritable.class.getName(), NullWritable.class.getName(), HashPartitioner.class.getName())
                .setFromConfiguration(conf).build();
        Vertex source = Vertex.create("source", ProcessorDescriptor.create(Source.class.getName()), TASKS);
        Vertex sink = Vertex.create("sink", ProcessorDescriptor.create(Sink.class.getName()), TASKS);
        DAG graph = DAG.create("sort").addVertex(source).addVertex(sink)
                .addEdge(Edge.create(source, sink, sorted.createDefaultEdgeProperty()));
        TezClient client = TezClient.create("small", conf);
        client.start();
        DAGStatus status = client.submitDAG(graph)
                .waitForCompletionWithStatusUpdates(EnumSet.of(StatusGetOpts.GET_COUNTERS));
        if (status.getState() != DAGStatus.State.SUCCEEDED || READ.get() != BYTES) {
            throw new IllegalStateException(status.getState() + " after " + READ + " bytes: " + status.getDiagnostics());
        }
        print("direct", status, TaskCounter.SHUFFLE_BYTES_DISK_DIRECT);
        print("spilled", status, TaskCounter.ADDITIONAL_SPILLS_BYTES_WRITTEN);
        client.stop();
        System.exit(0); // threads of the master do not end
    }

    private static void print(String name, DAGStatus status, TaskCounter counter) {
        System.out.println(name + " " + status.getDAGCounters().findCounter(counter).getValue());
    }
}
