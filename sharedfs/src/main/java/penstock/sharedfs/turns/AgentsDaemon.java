package penstock.sharedfs.turns;

import java.io.File;
import java.util.Collections;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import penstock.core.Gates;
import penstock.core.Names;
import penstock.core.Role;
import penstock.core.Stream;

/**
 * Asks the daemon of this machine over the agent's connection. This class is apart from {@link Turns}, because it
 * cannot be loaded without the agent's jar.
 */
final class AgentsDaemon implements Turns.Daemon {
    // The same setting and default as those of the agent's plug-in for tasks.
    private static final String SOCKET = "penstock.socket";
    private static final String DEFAULT_SOCKET = "/run/penstock/agent.sock";
    private static final Logger LOG = LoggerFactory.getLogger(Turns.class);

    private final String flow;
    private final File mount;

    private AgentsDaemon(String flow, File mount) {
        this.flow = flow;
        this.mount = mount;
    }

    /** Begins to connect, and returns null if this process cannot be governed. */
    static AgentsDaemon find(Configuration conf, Map<String, String> environment, File mount) {
        String flow = Names.ofContainer(environment.get("CONTAINER_ID"));
        if (flow == null) {
            return null; // a client or a daemon; only applications take turns
        }
        String obstacle = Gates.connect(conf.getTrimmed(SOCKET, DEFAULT_SOCKET), Role.TASK, flow,
            Collections.emptyList(), LOG::info);
        if (obstacle != null) {
            LOG.info("no turns at storage servers: {}", obstacle);
            return null;
        }
        return new AgentsDaemon(flow, mount);
    }

    @Override
    public Turns.Held take(boolean write, String server, long bytes) {
        Stream turn = Gates.takeTurn(write, flow, mount, server, bytes);
        if (turn == null) {
            return null;
        }
        return new Turns.Held() {
            @Override
            public boolean isGiven() {
                return Gates.hasTurn(turn);
            }

            @Override
            public void end() {
                Gates.endTurn(turn);
            }
        };
    }
}
