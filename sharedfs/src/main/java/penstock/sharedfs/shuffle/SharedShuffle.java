package penstock.sharedfs.shuffle;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.FSError;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.DataInputBuffer;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.JobID;
import org.apache.hadoop.mapred.MapTaskCompletionEventsUpdate;
import org.apache.hadoop.mapred.Merger;
import org.apache.hadoop.mapred.RawKeyValueIterator;
import org.apache.hadoop.mapred.Reporter;
import org.apache.hadoop.mapred.ShuffleConsumerPlugin;
import org.apache.hadoop.mapred.TaskAttemptID;
import org.apache.hadoop.mapred.TaskCompletionEvent;
import org.apache.hadoop.mapred.TaskStatus;
import org.apache.hadoop.mapreduce.CryptoUtils;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.task.reduce.Shuffle;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import penstock.sharedfs.SharedFileSystem;
import penstock.sharedfs.layout.Locator;
import penstock.sharedfs.layout.Setup;
import penstock.sharedfs.turns.FileTurns;
import penstock.sharedfs.turns.Turns;

/**
 * The plug-in for {@code mapreduce.job.reduce.shuffle.consumer.plugin.class}.
 *
 * <p>The plug-in waits until all maps have succeeded, finds their outputs, and merges them where they lie. If this is not
 * possible, Hadoop's own {@link Shuffle} does the whole reduce. The decision is made before the reducer sees the first
 * record: the merge has opened every map output by then. If a map output cannot be read later, the attempt fails.
 *
 * <p>Only a reduce task's first attempt reads in place. So no error of this class, or of the file system, can fail a task
 * more than once, and Hadoop's own shuffle reports a broken map output to the application master.
 */
public final class SharedShuffle<K, V> implements ShuffleConsumerPlugin<K, V> {
    /** The group of this plug-in's counters in the job's counters. */
    public static final String COUNTERS = "penstock.sharedfs.shuffle";
    /** Counter: bytes that were read from map outputs in place. */
    public static final String BYTES = "BYTES_IN_PLACE";
    /** Counter: map outputs that were merged in place, without empty ones. */
    public static final String OUTPUTS = "MAP_OUTPUTS_IN_PLACE";
    /** Counter: reduce attempts that used the ordinary shuffle. */
    public static final String FALLBACKS = "FALLBACKS";

    static final String MEMORY = "penstock.sharedfs.shuffle.memory";
    static final String OPEN_FILES = "penstock.sharedfs.shuffle.open-files";
    static final String WAIT = "penstock.sharedfs.shuffle.wait";
    static final int DEFAULT_OPEN_FILES = 256;

    private static final Logger LOG = LoggerFactory.getLogger(SharedShuffle.class);
    /** The part of the heap that map outputs may hold, if {@link #MEMORY} is not set: one tenth. */
    private static final int HEAP_PARTS = 10;
    /** Each start of the application master numbers its attempts from the next multiple of this number. */
    private static final int ATTEMPTS_OF_A_MASTER = 1000;

    // As in Hadoop's Shuffle and EventFetcher.
    private static final int MAX_EVENTS_TO_FETCH = 10000;
    private static final int MIN_EVENTS_TO_FETCH = 100;
    private static final int MAX_RPC_OUTSTANDING_EVENTS = 3000000;
    private static final int EVENT_FAILURES = 10;

    /** Milliseconds between two requests for events, and after a request that failed. */
    private final long poll;
    private final long retry;
    private Context<K, V> context;
    private JobConf job;
    private Reporter reporter;
    private Shuffle<K, V> ordinary;
    private final List<InPlaceReader<K, V>> readers = new ArrayList<>();
    private int nextEvent;

    /** Called by Hadoop. */
    public SharedShuffle() {
        this(1000, 5000); // as in Hadoop's EventFetcher
    }

    SharedShuffle(long poll, long retry) {
        this.poll = poll;
        this.retry = retry;
    }

    @Override
    public void init(Context<K, V> context) {
        this.context = context;
        this.job = context.getJobConf();
        this.reporter = context.getReporter();
    }

    @Override
    public RawKeyValueIterator run() throws IOException, InterruptedException {
        if (context.getLocalMapFiles() != null) { // a job in one process, whose reduces know the files
            return ordinary();
        }
        List<MapOutput> outputs;
        RawKeyValueIterator merged;
        try {
            checkAttempt();
            outputs = await();
            merged = merge(outputs);
        } catch (NotInPlaceException | RuntimeException | LinkageError e) { // such as a setting that is no number
            LOG.warn("map outputs are not read in place but by Hadoop's ordinary shuffle: {}",
                e instanceof NotInPlaceException ? e.getMessage() : e);
            LOG.debug("the reason", e);
            abandon();
            reporter.incrCounter(COUNTERS, FALLBACKS, 1);
            return ordinary();
        }
        for (MapOutput output : outputs) {
            context.getShuffledMapsCounter().increment(1);
            context.getReduceShuffleBytes().increment(output.stored);
        }
        context.getMergedMapOutputsCounter().increment(readers.size());
        reporter.incrCounter(COUNTERS, OUTPUTS, readers.size());
        context.getCopyPhase().complete();
        context.getStatus().setPhase(TaskStatus.Phase.SORT);
        context.getReduceTask().statusUpdate(context.getUmbilical());
        return merged;
    }

    private RawKeyValueIterator ordinary() throws IOException, InterruptedException {
        ordinary = new Shuffle<>();
        ordinary.init(context);
        return ordinary.run();
    }

    private void checkAttempt() throws NotInPlaceException {
        if (context.getReduceId().getId() % ATTEMPTS_OF_A_MASTER != 0) {
            throw new NotInPlaceException(context.getReduceId() + " is not the first attempt of its task");
        }
    }

    /** Returns the outputs of all maps when the last one has been found. */
    private List<MapOutput> await() throws IOException, InterruptedException {
        int maps = job.getNumMapTasks();
        long patience = job.getTimeDuration(WAIT, TimeUnit.SECONDS.toNanos(10), TimeUnit.NANOSECONDS);
        Places places = places();
        MapOutputs outputs = new MapOutputs(places, maps, patience);
        int failures = 0;
        while (true) {
            try {
                if (fetchEvents(outputs)) {
                    outputs = new MapOutputs(places, maps, patience);
                    continue;
                }
                failures = 0;
            } catch (NotInPlaceException e) {
                throw e;
            } catch (IOException e) {
                if (++failures >= EVENT_FAILURES) {
                    throw e;
                }
                LOG.info("the application master did not answer a request for events", e);
                reporter.progress();
                Thread.sleep(retry);
                continue;
            }
            outputs.find(System.nanoTime(), reporter::progress);
            int done = outputs.done();
            context.getCopyPhase().set(maps == 0 ? 1 : (float) done / maps);
            context.getStatus().setStateString(done + " / " + maps + " map outputs found in place.");
            reporter.progress();
            if (done == maps) {
                return outputs.all();
            }
            Thread.sleep(poll);
        }
    }

    private Places places() throws NotInPlaceException {
        try {
            return new Places(job, context.getReduceId().getTaskID());
        } catch (NotInPlaceException e) {
            throw e;
        } catch (IOException e) {
            throw new NotInPlaceException(e.toString(), e);
        }
    }

    /** Adds all new events, and reports whether the application master wants them to be fetched again from the first. */
    private boolean fetchEvents(MapOutputs outputs) throws IOException {
        int most = Math.min(MAX_EVENTS_TO_FETCH,
            Math.max(MIN_EVENTS_TO_FETCH, MAX_RPC_OUTSTANDING_EVENTS / Math.max(1, job.getNumReduceTasks())));
        TaskCompletionEvent[] events;
        do {
            MapTaskCompletionEventsUpdate update = context.getUmbilical().getMapCompletionEvents(
                (JobID) context.getReduceId().getJobID(), nextEvent, most, (TaskAttemptID) context.getReduceId());
            if (update.shouldReset()) {
                nextEvent = 0;
                return true;
            }
            events = update.getMapTaskCompletionEvents();
            nextEvent += events.length;
            for (TaskCompletionEvent event : events) {
                outputs.add(event, System.nanoTime());
            }
        } while (events.length == most);
        return false;
    }

    /** Opens all map outputs and merges them. */
    @SuppressWarnings("unchecked")
    private RawKeyValueIterator merge(List<MapOutput> outputs) throws IOException {
        List<MapOutput> full = new ArrayList<>();
        for (MapOutput output : outputs) {
            if (output.file != null) {
                full.add(output);
            }
        }
        FileSystem fs = ((LocalFileSystem) context.getLocalFS()).getRaw();
        MergeBounds bounds = new MergeBounds(
            job.getLongBytes(MEMORY, Runtime.getRuntime().maxMemory() / HEAP_PARTS), full.size(), others());
        OpenFiles files = new OpenFiles(fs, Math.max(0, job.getInt(OPEN_FILES, DEFAULT_OPEN_FILES)));
        DataInputBuffer lastValue = new DataInputBuffer();
        Turns turns = turns(full);
        List<Merger.Segment<K, V>> segments = new ArrayList<>();
        try {
            for (MapOutput output : full) {
                InPlaceReader<K, V> reader = new InPlaceReader<>(job, output,
                    new SegmentInput(files, output, bounds.buffer, reporter, turnsOf(turns, output)),
                    context.getCodec(), lastValue);
                readers.add(reader);
                segments.add(new Merger.Segment<>(reader, true, output.raw));
            }
            return Merger.merge(job, fs, (Class<K>) job.getMapOutputKeyClass(),
                (Class<V>) job.getMapOutputValueClass(), context.getCodec(), segments, bounds.inputs,
                new Path(context.getReduceId().toString()), job.getOutputKeyComparator(), reporter, true,
                context.getSpilledRecordsCounter(), context.getSpilledRecordsCounter(), context.getMergePhase(),
                TaskType.REDUCE);
        } catch (IOException | RuntimeException | FSError e) {
            throw new NotInPlaceException(e.toString(), e);
        }
    }

    /** Returns null if reads take no turns at storage servers. Asks for the layouts of all outputs at once. */
    private Turns turns(List<MapOutput> outputs) {
        if (!job.getBoolean(Turns.ENABLED, false)) {
            return null;
        }
        try {
            Path mount = new Path(job.getTrimmed(SharedFileSystem.MOUNT, ""));
            Turns turns = Turns.find(job, System.getenv(), Setup.locator(job, mount.toString()),
                java.nio.file.Paths.get(mount.toString()));
            if (turns != null) {
                List<Locator.File> all = new ArrayList<>();
                for (MapOutput output : outputs) {
                    all.add(fileOf(output));
                }
                turns.locator().prepare(all);
            }
            return turns;
        } catch (IOException | RuntimeException e) { // such as a setting that is missing
            LOG.warn("map outputs are read without turns at storage servers: {}", e.toString());
            return null;
        }
    }

    private static Locator.File fileOf(MapOutput output) {
        return new Locator.File(output.file.toString(), 0, 0); // it is complete, and stays as it is
    }

    private static FileTurns turnsOf(Turns turns, MapOutput output) {
        return turns == null ? null : new FileTurns(turns, fileOf(output), false);
    }

    /** Returns how many bytes an open map output holds besides its buffer. */
    private long others() {
        long bytes = context.getCodec() == null ? 0 : MergeBounds.DECOMPRESSOR;
        if (CryptoUtils.isEncryptedSpillEnabled(job)) { // one buffer of encrypted bytes, one of plain ones
            bytes += 2 * 1024L * job.getInt(MRJobConfig.MR_ENCRYPTED_INTERMEDIATE_DATA_BUFFER_KB,
                MRJobConfig.DEFAULT_MR_ENCRYPTED_INTERMEDIATE_DATA_BUFFER_KB);
        }
        return bytes;
    }

    private void abandon() {
        for (InPlaceReader<K, V> reader : readers) {
            try {
                reader.abandon();
            } catch (IOException | FSError e) {
                LOG.debug("closing a map output", e);
            }
        }
        readers.clear();
    }

    @Override
    public void close() {
        if (ordinary != null) {
            ordinary.close();
        }
        abandon();
    }
}
