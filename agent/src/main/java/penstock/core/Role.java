package penstock.core;

/** The kind of process in which this agent or plug-in runs. */
public enum Role {
    DATANODE(Frames.DATANODE),
    /** A task's JVM with the plug-in; nothing is instrumented there. */
    TASK(Frames.TASK),
    NODEMANAGER(Frames.NODEMANAGER),
    EXECUTOR(Frames.EXECUTOR),
    /** A Worker of a standalone Spark with the shuffle service, or the service in a process of its own. */
    WORKER(Frames.WORKER);

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
        throw new IllegalArgumentException("give the agent role=datanode, nodemanager, executor or worker, not \""
                + name + "\"");
    }
}
