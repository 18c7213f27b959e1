package penstock.core;

import java.nio.charset.StandardCharsets;
import java.util.regex.Pattern;

/**
 * Evidence about the requester of an operation, in addition to the name that the client claims: the two ends of its TCP
 * connection as ip:port, and the user of its block token. An unknown value is "", which confirms nothing. So the
 * DataNode's own operations are marked explicitly, as {@link #OWN}. The daemon evaluates the evidence.
 */
public final class Peer {
    /** Nothing is known. */
    public static final Peer UNKNOWN = new Peer("", "", "");
    /** No client requested the operation: the DataNode performs it for itself. No address has this form. */
    public static final Peer OWN = new Peer("own", "", "");

    private static final Pattern ADDRESS =
            Pattern.compile("(?:[0-9.]{7,15}|\\[[0-9a-fA-F:.]{2,45}]):[0-9]{1,5}");

    public final String client;
    public final String server;
    public final String user;
    /** Whether the stream is a turn at a storage server, and {@link #server} its name. */
    final boolean storage;

    /**
     * Converts addresses as the JVM or Hadoop prints them: host/ip:port, with IPv6 in brackets or not. Domain sockets
     * and everything else are unknown.
     */
    public static Peer of(String client, String server, String user) {
        Peer peer = new Peer(address(client), address(server),
                user(user));
        return peer.client.isEmpty() && peer.server.isEmpty() && peer.user.isEmpty() ? UNKNOWN : peer;
    }

    private static String user(String user) {
        boolean fits = user != null && user.indexOf('\0') < 0
                && user.getBytes(StandardCharsets.UTF_8).length <= Frames.MAX_USER;
        return fits ? user : "";
    }

    private static String address(String printed) {
        if (printed == null) {
            return "";
        }
        String address = printed.substring(printed.indexOf('/') + 1);
        int colon = address.lastIndexOf(':');
        String ip = colon < 0 ? "" : address.substring(0, colon);
        int zone = ip.indexOf('%');
        if (zone >= 0) {
            ip = ip.substring(0, zone) + (ip.endsWith("]") ? "]" : "");
        }
        if (ip.indexOf(':') >= 0 && !ip.startsWith("[")) {
            ip = "[" + ip + "]";
        }
        String port = address.substring(colon + 1);
        String whole = ip + ":" + port;
        return ADDRESS.matcher(whole).matches() ? whole : "";
    }

    Peer(String client, String server, String user) {
        this(client, server, user, false);
    }

    /**
     * Returns the storage server for {@link Gates#takeTurn}.
     *
     * @param server its name; null if no daemon can know a server of that name
     */
    static Peer storage(String server) {
        boolean fits = !server.isEmpty() && server.length() <= Frames.MAX_ADDRESS
                && server.chars().allMatch(c -> c > ' ' && c < 0x7f);
        return fits ? new Peer("", server, "", true) : null;
    }

    private Peer(String client, String server, String user, boolean storage) {
        this.storage = storage;
        this.client = client;
        this.server = server;
        this.user = user;
    }
}
