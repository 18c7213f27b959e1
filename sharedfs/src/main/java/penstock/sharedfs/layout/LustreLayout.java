package penstock.sharedfs.layout;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.LongSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import penstock.sharedfs.layout.Placement.Run;

/**
 * Lustre: {@code lfs getstripe} shows the objects of a file's components, each on a target (OST), and {@code lctl}
 * shows the server to which this client is connected for each target. Nothing of Lustre, which is under the GPL, is
 * linked.
 *
 * <p>Components without objects hold no data yet. Components on a metadata target, released ones (HSM), stale mirrors
 * and parity give no locality.
 */
final class LustreLayout implements Layout {
    private static final long BLOCK = 128L << 20;
    private static final Pattern PAIR = Pattern.compile("\\s*(?:- )?\\s*([a-z_.]+):\\s*(.*?)\\s*");
    /** An object in a composite layout, as "- 0: { l_ost_idx: 1, ... }". */
    private static final Pattern OBJECT = Pattern.compile("\\s*-\\s+\\d+:\\s*\\{\\s*l_ost_idx:\\s*(\\d{1,9})\\b.*");
    private static final Pattern ROW = Pattern.compile("\\s+(\\d{1,9})\\s+\\d+\\s.*");
    private static final Pattern CONNECTION =
        Pattern.compile("osc\\.[^.]*-OST([0-9a-fA-F]{4,7})-osc-[^.]*\\.ost_conn_uuid=(\\S+)");
    private static final Pattern INSTANCE = Pattern.compile("([A-Za-z0-9_.-]+)-([0-9a-fA-F]+)(\\s.*)?");

    private final Tool tool;
    private final String mount;
    private final Hosts hosts;
    private final long maxAgeNanos;
    private final LongSupplier nanos;
    private Map<Integer, String> servers = Collections.emptyMap();
    private long serversRead;

    /** @param maxAgeNanos how long the servers of targets are remembered; a failover moves targets */
    LustreLayout(Tool tool, String mount, Hosts hosts, long maxAgeNanos, LongSupplier nanos) {
        this.tool = tool;
        this.mount = mount;
        this.hosts = hosts;
        this.maxAgeNanos = maxAgeNanos;
        this.nanos = nanos;
    }

    @Override
    public Map<String, Placement> ask(List<String> files) throws IOException {
        Map<Integer, String> known = servers();
        List<String> arguments = new ArrayList<>();
        arguments.add("getstripe");
        arguments.addAll(files);
        Tool.Answer answer = tool.run("lfs", arguments);
        Map<String, Placement> placements = parse(answer.text, files, known);
        if (placements.isEmpty()) {
            throw Tool.useless("lfs", arguments, answer);
        }
        return placements;
    }

    @Override
    public long blockSize() {
        return BLOCK;
    }

    @Override
    public void createNear(String file) throws IOException {
        List<Integer> near = new ArrayList<>();
        for (Map.Entry<Integer, String> e : servers().entrySet()) {
            if (hosts.isLocal(e.getValue())) {
                near.add(e.getKey());
            }
        }
        if (near.isEmpty()) {
            throw new IOException("no target of Lustre is on this machine");
        }
        int target = near.get(ThreadLocalRandom.current().nextInt(near.size()));
        List<String> arguments = Arrays.asList("setstripe", "-c", "1", "-i", Integer.toString(target), file);
        Tool.Answer answer = tool.run("lfs", arguments);
        if (answer.exit != 0) {
            throw Tool.useless("lfs", arguments, answer);
        }
    }

    /** Returns the server of each target. */
    private synchronized Map<Integer, String> servers() throws IOException {
        if (servers.isEmpty() || nanos.getAsLong() - serversRead > maxAgeNanos) {
            List<String> name = Arrays.asList("getname", mount);
            Tool.Answer answer = tool.run("lfs", name);
            Matcher m = INSTANCE.matcher(answer.text.trim());
            if (!m.matches()) {
                throw Tool.useless("lfs", name, answer);
            }
            List<String> get = Arrays.asList("get_param",
                "osc." + m.group(1) + "-OST*-osc-" + m.group(2) + ".ost_conn_uuid");
            answer = tool.run("lctl", get);
            Map<Integer, String> found = parseServers(answer.text);
            if (found.isEmpty()) {
                throw Tool.useless("lctl", get, answer);
            }
            servers = found;
            serversRead = nanos.getAsLong();
        }
        return servers;
    }

    /** Reads lines such as {@code osc.fs-OST000c-osc-ffff8800.ost_conn_uuid=10.0.0.2@tcp}, with the target in hex. */
    static Map<Integer, String> parseServers(String text) {
        Map<Integer, String> servers = new HashMap<>();
        for (String line : text.split("\n")) {
            Matcher m = CONNECTION.matcher(line.trim());
            if (m.matches() && servers.size() < Placement.MAX_COLUMNS) {
                try {
                    servers.put(Integer.parseInt(m.group(1), 16), Hosts.checked(m.group(2)));
                } catch (IllegalArgumentException e) {
                    // This target's server is not known.
                }
            }
        }
        return servers;
    }

    /**
     * Reads what lfs getstripe writes for several files: each one's path, and its plain or composite layout, with or
     * without the option for YAML. Without a path, the answer is that of the only file.
     */
    static Map<String, Placement> parse(String text, List<String> files, Map<Integer, String> servers) {
        Map<String, Placement> placements = new HashMap<>();
        Set<String> asked = new HashSet<>(files);
        FileParser parser = files.size() == 1 ? new FileParser(files.get(0), servers) : null;
        for (String line : text.split("\n")) {
            if (asked.contains(line)) {
                finish(parser, placements);
                parser = new FileParser(line, servers);
            } else if (parser != null) {
                parser.line(line);
            }
        }
        finish(parser, placements);
        return placements;
    }

    private static void finish(FileParser parser, Map<String, Placement> placements) {
        if (parser != null) {
            Placement placement = parser.placement();
            if (placement != null) {
                placements.put(parser.file, placement);
            }
        }
    }

    /** A parser of one file's layout. */
    private static final class FileParser {
        final String file;
        private final Map<Integer, String> servers;
        private final List<Run> runs = new ArrayList<>();
        private boolean seen;
        private boolean valid = true;
        private int objects;
        private Component current;
        private boolean inTable;

        FileParser(String file, Map<Integer, String> servers) {
            this.file = file;
            this.servers = servers;
        }

        void line(String line) {
            try {
                read(line);
            } catch (IllegalArgumentException e) {
                valid = false;
            }
        }

        private void read(String line) {
            Matcher m;
            if ((m = OBJECT.matcher(line)).matches() || inTable && (m = ROW.matcher(line)).matches()) {
                object(m.group(1));
            } else if (line.trim().startsWith("obdidx")) {
                inTable = true;
            } else if ((m = PAIR.matcher(line)).matches()) {
                inTable = false;
                pair(m.group(1), m.group(2));
            }
        }

        private void pair(String key, String value) {
            if (key.equals("lcme_id")) {
                endComponent();
                current = new Component();
                current.init = false;
                return;
            }
            if (current == null && key.startsWith("lmm_")) {
                current = new Component();
            }
            if (current == null) {
                return;
            }
            seen = true;
            switch (key) {
                case "lcme_flags":
                    List<String> flags = Arrays.asList(value.split(","));
                    current.init = flags.contains("init");
                    current.useful &= !flags.contains("stale") && !flags.contains("parity");
                    break;
                case "lcme_extent.e_start":
                    current.start = Long.parseLong(value);
                    break;
                case "lcme_extent.e_end":
                    current.end = value.equals("EOF") ? Long.MAX_VALUE : Long.parseLong(value);
                    break;
                case "lmm_stripe_count":
                    current.count = Long.parseLong(value);
                    break;
                case "lmm_stripe_size":
                    current.size = Long.parseLong(value);
                    break;
                case "lmm_pattern":
                    // Old versions write a number.
                    current.useful &= value.equals("raid0") || value.equals("1")
                        || value.equals("raid0,overstriped");
                    break;
                case "l_ost_idx":
                    object(value);
                    break;
                default:
                    break;
            }
        }

        private void object(String index) {
            if (current == null || ++objects > Placement.MAX_COLUMNS) {
                throw new IllegalArgumentException("objects without a layout, or too many");
            }
            String server = servers.get(Integer.parseInt(index));
            current.columns.add(server == null ? Collections.emptyList() : Collections.singletonList(server));
        }

        private void endComponent() {
            if (current != null && current.init && current.useful) {
                if (current.count != current.columns.size()) {
                    throw new IllegalArgumentException("a component with other objects than it says");
                }
                runs.add(new Run(current.start, current.end, current.size, current.columns));
            }
            current = null;
        }

        /** Returns null if there was no valid layout. */
        Placement placement() {
            try {
                endComponent();
            } catch (IllegalArgumentException e) {
                valid = false;
            }
            return seen && valid ? new Placement(runs) : null;
        }
    }

    /** A component of a layout, or the whole of a plain one. */
    private static final class Component {
        private boolean init = true;
        private boolean useful = true;
        private long start;
        private long end = Long.MAX_VALUE;
        private long size = -1;
        private long count = -1;
        private final List<List<String>> columns = new ArrayList<>();
    }
}
