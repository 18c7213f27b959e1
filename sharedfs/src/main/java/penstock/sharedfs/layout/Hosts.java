package penstock.sharedfs.layout;

import java.io.IOException;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;

/**
 * The names under which YARN knows storage servers. YARN compares the hosts of a split with its nodes' names letter by
 * letter, and file systems often name a server by its address in the storage network.
 */
final class Hosts {
    private static final Pattern NAME = Pattern.compile("[A-Za-z0-9_][A-Za-z0-9_.:%@-]{0,253}");

    private final Map<String, String> names;

    private Hosts(Map<String, String> names) {
        this.names = names;
    }

    /**
     * Reads a file with lines "SERVER HOST"; # begins a comment.
     *
     * @param file its path; empty means that servers keep their names
     */
    static Hosts read(String file) throws IOException {
        Map<String, String> names = new HashMap<>();
        if (!file.isEmpty()) {
            int number = 0;
            for (String line : Files.readAllLines(Paths.get(file), StandardCharsets.UTF_8)) {
                number++;
                String[] words = line.replaceFirst("#.*", "").trim().split("\\s+");
                if (words.length == 2) {
                    names.put(words[0], words[1]);
                } else if (!words[0].isEmpty()) {
                    throw new IOException(file + ":" + number + ": a line has a server's name and a host name");
                }
            }
        }
        return new Hosts(names);
    }

    String of(String server) {
        String name = names.get(server);
        if (name == null && server.indexOf('@') > 0) {
            // A network identifier of Lustre: the address, and the network.
            String address = server.substring(0, server.indexOf('@'));
            name = names.getOrDefault(address, address);
        }
        return name == null ? server : name;
    }

    /** Reports whether the server is this machine, by its host name or by an address of its interfaces. */
    boolean isLocal(String server) {
        return ofThisMachine().contains(of(server)) || ofThisMachine().contains(server.replaceFirst("@.*", ""));
    }

    private static Set<String> local;

    private static synchronized Set<String> ofThisMachine() {
        if (local == null) {
            Set<String> found = new HashSet<>();
            try {
                found.add(hostName());
                found.add(InetAddress.getLocalHost().getCanonicalHostName());
                for (NetworkInterface each : Collections.list(NetworkInterface.getNetworkInterfaces())) {
                    for (InetAddress address : Collections.list(each.getInetAddresses())) {
                        if (!address.isLoopbackAddress()) {
                            found.add(address.getHostAddress());
                        }
                    }
                }
            } catch (IOException e) {
                // A machine that does not know itself has no local server.
            }
            local = found;
        }
        return local;
    }

    /** Returns this machine's name, without its domain if short is enough for its own configuration. */
    static String hostName() throws UnknownHostException {
        return InetAddress.getLocalHost().getHostName();
    }

    /**
     * Returns the server's name.
     *
     * @throws IllegalArgumentException if it cannot be one
     */
    static String checked(String server) {
        if (!NAME.matcher(server).matches()) {
            throw new IllegalArgumentException("not the name of a server");
        }
        return server;
    }
}
