package penstock.sharedfs.shuffle;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.mapred.TaskCompletionEvent;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskType;

/** The state of each map of a job, from the events, and the outputs that have been found. */
final class MapOutputs {
    private final Places places;
    /** How long an output may be invisible after its map has succeeded, in nanoseconds. */
    private final long patience;
    private final MapOutput[] found;
    /** Maps that have failed for good in a job that allows it; they have no output. */
    private final boolean[] failed;
    /** Maps that have succeeded, whose outputs have not been found. */
    private final Map<Integer, Sought> sought = new TreeMap<>();

    /** A successful attempt whose output is looked for. */
    private static final class Sought {
        final TaskCompletionEvent event;
        final long since;

        Sought(TaskCompletionEvent event, long since) {
            this.event = event;
            this.since = since;
        }
    }

    MapOutputs(Places places, int maps, long patience) {
        this.places = places;
        this.patience = patience;
        this.found = new MapOutput[maps];
        this.failed = new boolean[maps];
    }

    /**
     * Notes an event, at the time {@code now} of {@link System#nanoTime}.
     *
     * @throws NotInPlaceException if the event is about a map that the job does not have
     */
    void add(TaskCompletionEvent event, long now) throws NotInPlaceException {
        TaskAttemptID attempt = event.getTaskAttemptId();
        int map = attempt.getTaskID().getId();
        if (attempt.getTaskType() != TaskType.MAP || map < 0 || map >= found.length) {
            throw new NotInPlaceException("an event about " + attempt + " in a job of " + found.length + " maps");
        }
        switch (event.getTaskStatus()) {
            case SUCCEEDED:
                found[map] = null;
                sought.put(map, new Sought(event, now));
                break;
            case TIPFAILED:
                failed[map] = true;
                break;
            default: // FAILED, KILLED, OBSOLETE: another attempt follows, or has succeeded
                if (found[map] != null && found[map].attempt.equals(attempt)) {
                    found[map] = null;
                }
                if (sought.containsKey(map) && sought.get(map).event.getTaskAttemptId().equals(attempt)) {
                    sought.remove(map);
                }
        }
    }

    /**
     * Looks for the outputs of maps that have succeeded.
     *
     * @param progress is called for each of these maps
     * @throws NotInPlaceException if an output is still missing after the longest time
     */
    void find(long now, Runnable progress) throws NotInPlaceException {
        for (Iterator<Map.Entry<Integer, Sought>> i = sought.entrySet().iterator(); i.hasNext();) {
            Map.Entry<Integer, Sought> entry = i.next();
            Sought one = entry.getValue();
            progress.run();
            try {
                found[entry.getKey()] = places.find(one.event);
                i.remove();
            } catch (NotInPlaceException e) {
                throw e;
            } catch (IOException e) {
                if (now - one.since >= patience) {
                    throw new NotInPlaceException(one.event.getTaskAttemptId() + ": " + e, e);
                }
            } catch (RuntimeException | LinkageError e) { // such as Hadoop's class for files, without libhadoop
                throw new NotInPlaceException("looking for " + one.event.getTaskAttemptId() + ": " + e, e);
            }
        }
    }

    /** Returns the number of maps whose output has been found or will never exist. */
    int done() {
        int done = 0;
        for (int i = 0; i < found.length; i++) {
            if (found[i] != null || failed[i] && !sought.containsKey(i)) {
                done++;
            }
        }
        return done;
    }

    /** Returns the outputs that have been found, in the order of maps. */
    List<MapOutput> all() {
        List<MapOutput> all = new ArrayList<>();
        for (MapOutput output : found) {
            if (output != null) {
                all.add(output);
            }
        }
        return all;
    }
}
