package penstock.agent;

import java.util.Collections;
import java.util.List;
import java.util.Set;

/** What the process is for which this agent or plug-in speaks. */
public enum Role {
    DATANODE(Frames.DATANODE),
    /** A plug-in in a task's JVM; nothing is woven there. */
    TASK(Frames.TASK),
    NODEMANAGER(Frames.NODEMANAGER),
    EXECUTOR(Frames.EXECUTOR);

    final int code;

    Role(int code) {
        this.code = code;
    }

    /** The methods to advise in such a process. */
    List<Weaver.Point> points() {
        return this == DATANODE ? DataNodePoints.ALL : this == EXECUTOR ? ExecutorPoints.ALL
                : this == NODEMANAGER ? NodeManagerPoints.ALL : Collections.<Weaver.Point>emptyList();
    }

    /** The fields that must be there although no advice names them. */
    List<Weaver.Field> fields() {
        return this == NODEMANAGER ? NodeManagerPoints.FIELDS : this == EXECUTOR ? ExecutorPoints.FIELDS
                : Collections.<Weaver.Field>emptyList();
    }

    /** The types whose objects carry their stream, in a field that weaving adds. */
    Set<String> carriers() {
        return this == DATANODE ? DataNodePoints.CARRIERS : this == EXECUTOR ? ExecutorPoints.CARRIERS
                : Collections.<String>emptySet();
    }

    /** The name of the type that they carry. */
    String carried() {
        return this == EXECUTOR ? ExecutorPoints.CARRIED : Stream.class.getName();
    }

    /** @throws IllegalArgumentException for a role that the agent's arguments cannot name */
    static Role named(String name) {
        for (Role role : values()) {
            if (role != TASK && role.name().equalsIgnoreCase(name)) {
                return role;
            }
        }
        throw new IllegalArgumentException("give the agent role=datanode, nodemanager or executor, not \"" + name
                + "\"");
    }
}
