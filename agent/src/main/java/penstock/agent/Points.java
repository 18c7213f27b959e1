package penstock.agent;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import penstock.core.Feature;
import penstock.core.Role;
import penstock.core.Stream;
import penstock.hdfs.DataNodePoints;
import penstock.shuffle.NodeManagerPoints;
import penstock.spark.ExecutorPoints;
import penstock.spark.ShuffleServicePoints;
import penstock.spark.WorkerPoints;

/** The methods that are instrumented in each role. */
final class Points {
    private Points() { }

    private static List<Feature> nodeManager() {
        List<Feature> all = new ArrayList<>(NodeManagerPoints.ALL);
        all.addAll(ShuffleServicePoints.ALL);
        return Collections.unmodifiableList(all);
    }

    /** Returns the features; the others need the first one. */
    static List<Feature> of(Role role) {
        return role == Role.DATANODE ? DataNodePoints.ALL : role == Role.EXECUTOR ? ExecutorPoints.ALL
                : role == Role.NODEMANAGER ? nodeManager() : role == Role.WORKER ? WorkerPoints.ALL
                : Collections.<Feature>emptyList();
    }

    /** Returns the types to which weaving adds a field that holds the object's stream or file. */
    static Set<String> carriers(Role role) {
        return role == Role.DATANODE ? DataNodePoints.CARRIERS : role == Role.EXECUTOR ? ExecutorPoints.CARRIERS
                : Collections.<String>emptySet();
    }

    /** Returns the name of the type of the field that weaving adds to the {@link #carriers}. */
    static String carried(Role role) {
        return role == Role.EXECUTOR ? ExecutorPoints.CARRIED : Stream.class.getName();
    }
}
