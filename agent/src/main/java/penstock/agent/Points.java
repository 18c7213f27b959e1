package penstock.agent;

import java.util.Collections;
import java.util.List;
import java.util.Set;
import penstock.core.Point;
import penstock.core.ReflectedField;
import penstock.core.Role;
import penstock.core.Stream;
import penstock.hdfs.DataNodePoints;
import penstock.shuffle.NodeManagerPoints;
import penstock.spark.ExecutorPoints;

/** The methods that are instrumented in each role. */
final class Points {
    private Points() { }

    /** Returns the methods to advise. */
    static List<Point> of(Role role) {
        return role == Role.DATANODE ? DataNodePoints.ALL : role == Role.EXECUTOR ? ExecutorPoints.ALL
                : role == Role.NODEMANAGER ? NodeManagerPoints.ALL : Collections.<Point>emptyList();
    }

    /** Returns the fields that must exist although no advice names them. */
    static List<ReflectedField> fields(Role role) {
        return role == Role.NODEMANAGER ? NodeManagerPoints.FIELDS : role == Role.EXECUTOR ? ExecutorPoints.FIELDS
                : Collections.<ReflectedField>emptyList();
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
