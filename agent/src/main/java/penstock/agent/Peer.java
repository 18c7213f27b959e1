package penstock.agent;

/**
 * What an operation shows of who asked for it, beside the name that the client
 * gives itself: the two ends of its TCP connection as ip:port, and the user of its
 * block token. What is not known is "". It is evidence; the daemon weighs it.
 */
public final class Peer {
    static final Peer UNKNOWN = new Peer("", "", "");

    final String client;
    final String server;
    final String user;

    Peer(String client, String server, String user) {
        this.client = client;
        this.server = server;
        this.user = user;
    }
}
