package penstock.core;

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

    /** @throws IllegalArgumentException for a role that the agent's arguments cannot name */
    public static Role named(String name) {
        for (Role role : values()) {
            if (role != TASK && role.name().equalsIgnoreCase(name)) {
                return role;
            }
        }
        throw new IllegalArgumentException("give the agent role=datanode, nodemanager or executor, not \"" + name
                + "\"");
    }
}
