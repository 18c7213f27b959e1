package penstock.sharedfs.shuffle;

import java.io.IOException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.apache.hadoop.mapred.AMFeedback;
import org.apache.hadoop.mapred.MapTaskCompletionEventsUpdate;
import org.apache.hadoop.mapred.TaskAttemptID;
import org.apache.hadoop.mapred.TaskCompletionEvent;
import org.apache.hadoop.mapred.TaskStatus;
import org.apache.hadoop.mapred.TaskUmbilicalProtocol;

/** A small application master in this JVM: it has events, and listens to tasks. */
final class Master {
    private final List<TaskCompletionEvent> events = new ArrayList<>();
    /** The maps whose outputs reduces could not fetch. */
    final Set<TaskAttemptID> reported = ConcurrentHashMap.newKeySet();
    /** Runs at each request for events, with the number of earlier requests. */
    volatile Consumer<Integer> whenAsked = n -> { };
    /** Runs when a fetch failure is reported for the first time. */
    volatile Consumer<TaskAttemptID> whenReported = a -> { };
    /** How many requests for events fail, or are answered with "begin at the first event". */
    volatile int failures;
    volatile int resets;
    private int questions;

    synchronized void event(TaskAttemptID attempt, TaskCompletionEvent.Status status, String address) {
        events.add(new TaskCompletionEvent(events.size(), attempt, attempt.getTaskID().getId(), true, status, address));
    }

    /** Returns what tasks call. The protocol has types that are only visible in its own package. */
    TaskUmbilicalProtocol protocol() {
        return (TaskUmbilicalProtocol) Proxy.newProxyInstance(getClass().getClassLoader(),
            new Class<?>[] {TaskUmbilicalProtocol.class}, (proxy, method, args) -> switch (method.getName()) {
                case "getMapCompletionEvents" -> events((Integer) args[1], (Integer) args[2]);
                case "statusUpdate" -> status((TaskStatus) args[1]);
                case "canCommit" -> true;
                case "getProtocolVersion" -> TaskUmbilicalProtocol.versionID;
                default -> null;
            });
    }

    private synchronized MapTaskCompletionEventsUpdate events(int from, int most) throws IOException {
        whenAsked.accept(questions++);
        if (failures > 0) {
            failures--;
            throw new IOException("no answer, as the test wants");
        }
        if (resets > 0) {
            resets--;
            return new MapTaskCompletionEventsUpdate(new TaskCompletionEvent[0], true);
        }
        List<TaskCompletionEvent> some = from < events.size()
            ? events.subList(from, Math.min(from + most, events.size())) : Collections.emptyList();
        return new MapTaskCompletionEventsUpdate(some.toArray(new TaskCompletionEvent[0]), false);
    }

    private AMFeedback status(TaskStatus status) {
        if (status != null && status.getFetchFailedMaps() != null) {
            for (TaskAttemptID map : status.getFetchFailedMaps()) {
                if (reported.add(map)) {
                    whenReported.accept(map);
                }
            }
        }
        AMFeedback feedback = new AMFeedback();
        feedback.setTaskFound(true);
        return feedback;
    }
}
