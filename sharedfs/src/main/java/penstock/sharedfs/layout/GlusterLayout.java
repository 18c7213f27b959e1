package penstock.sharedfs.layout;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import penstock.sharedfs.layout.Placement.Run;

/**
 * GlusterFS: the virtual extended attribute pathinfo names the bricks of a file. A client answers it under two names:
 * {@code trusted.glusterfs.pathinfo} needs CAP_SYS_ADMIN, {@code glusterfs.pathinfo} only the right to read the file.
 * Java reads neither, so getfattr does.
 *
 * <p>With sharding, the attribute names the bricks of the first shard only. The places of the other shards depend on
 * hashes that clients cannot read, so nothing is said of them.
 */
final class GlusterLayout implements Layout {
    /** The smallest shard that GlusterFS allows, in bytes. The first bytes of any file are never in a later shard. */
    static final long LEAST_SHARD = 4L << 20;
    private static final int MAX_DEPTH = 8;
    private static final long BLOCK = 128L << 20;

    private final Tool tool;
    private final String attribute;
    private final long shard;

    /**
     * @param attribute the attribute to read
     * @param shard bytes of a shard; 0 if the volume has no shards; negative if that is not known
     */
    GlusterLayout(Tool tool, String attribute, long shard) {
        this.tool = tool;
        this.attribute = attribute;
        this.shard = shard < 0 ? LEAST_SHARD : shard;
    }

    @Override
    public Map<String, Placement> ask(List<String> files) throws IOException {
        List<String> arguments = new ArrayList<>(
            Arrays.asList("--absolute-names", "-e", "text", "-n", attribute, "--"));
        arguments.addAll(files);
        Tool.Answer answer = tool.run("getfattr", arguments);
        Map<String, Placement> placements = parse(answer.text, attribute, shard);
        if (placements.isEmpty()) {
            throw Tool.useless("getfattr", arguments, answer);
        }
        return placements;
    }

    @Override
    public long blockSize() {
        return shard == 0 ? BLOCK : Math.max(shard, LEAST_SHARD);
    }

    @Override
    public void createNear(String file) throws IOException {
        throw new IOException("GlusterFS itself chooses a file's brick; the volume option cluster.nufa chooses the"
            + " writer's own");
    }

    /**
     * Reads what getfattr writes: for each file "# file: NAME" and ATTRIBUTE="VALUE", where a backslash and three octal
     * digits stand for a byte.
     */
    static Map<String, Placement> parse(String text, String attribute, long shard) {
        Map<String, Placement> placements = new HashMap<>();
        String file = null;
        String[] lines = text.split("\n");
        for (int i = 0; i < lines.length; i++) {
            String line = lines[i];
            if (line.startsWith("# file: ")) {
                file = unquoted(line.substring("# file: ".length()));
            } else if (file != null && line.startsWith(attribute + "=\"")) {
                // A line break in the value is not always quoted.
                StringBuilder value = new StringBuilder(line.substring(attribute.length() + 2));
                for (String last = value.toString(); last.indexOf('"') < 0 && i + 1 < lines.length;) {
                    last = lines[++i];
                    value.append(' ').append(last);
                }
                try {
                    int quote = value.lastIndexOf("\"");
                    placements.put(file, placement(unquoted(value.substring(0, Math.max(0, quote))), shard));
                } catch (IllegalArgumentException e) {
                    // No answer for this file.
                }
                file = null;
            }
        }
        return placements;
    }

    /** Undoes the tool's quoting, which is of control characters and backslashes only. */
    private static String unquoted(String s) {
        StringBuilder out = new StringBuilder(s.length());
        for (int i = 0; i < s.length(); i++) {
            char c = s.charAt(i);
            if (c == '\\' && isOctal(s, i + 1)) {
                out.append((char) Integer.parseInt(s.substring(i + 1, i + 4), 8));
                i += 3;
            } else if (c == '\\' && i + 1 < s.length()) {
                out.append(s.charAt(++i));
            } else {
                out.append(c);
            }
        }
        return out.toString();
    }

    /** Reports whether three octal digits of a byte are at the index. */
    private static boolean isOctal(String s, int at) {
        return at + 3 <= s.length() && s.charAt(at) >= '0' && s.charAt(at) <= '3' && isOctal(s.charAt(at + 1))
            && isOctal(s.charAt(at + 2));
    }

    private static boolean isOctal(char c) {
        return c >= '0' && c <= '7';
    }

    /**
     * Reads the attribute's value. It shows the tree of translators, with the bricks as leaves:
     * <pre>
     * (&lt;DISTRIBUTE:v-dht&gt; (&lt;REPLICATE:v-replicate-0&gt; &lt;POSIX(/b):s1:/b/f&gt; &lt;POSIX(/b):s2:/b/f&gt;))
     * </pre>
     *
     * @throws IllegalArgumentException if it is anything else. A file name that contains {@code >} may be the reason.
     */
    static Placement placement(String value, long shard) {
        Reader in = new Reader(value);
        List<List<String>> columns = in.node(0);
        in.end();
        if (columns.isEmpty()) {
            return Placement.NONE;
        }
        long end = shard == 0 ? Long.MAX_VALUE : shard;
        return new Placement(Collections.singletonList(new Run(0, end, in.unit, columns)));
    }

    /** A reader of the tree. Each node becomes the columns of a run. */
    private static final class Reader {
        private final String s;
        private int at;
        private long unit = Long.MAX_VALUE;
        private boolean striped;

        Reader(String s) {
            this.s = s;
        }

        List<List<String>> node(int depth) {
            skipSpace();
            if (depth > MAX_DEPTH) {
                throw wrong("too deep");
            }
            if (s.startsWith("<POSIX", at)) {
                return Collections.singletonList(Collections.singletonList(brick()));
            }
            take("(<");
            int close = s.indexOf('>', at);
            if (close < 0) {
                throw wrong("no end of a name");
            }
            String name = s.substring(at, close);
            at = close + 1;
            List<List<List<String>>> children = new ArrayList<>();
            for (skipSpace(); !s.startsWith(")", at); skipSpace()) {
                children.add(node(depth + 1));
                if (children.size() > Placement.MAX_COLUMNS) {
                    throw wrong("too many parts");
                }
            }
            take(")");
            return joined(name, children);
        }

        private List<List<String>> joined(String name, List<List<List<String>>> children) {
            if (children.isEmpty()) {
                throw wrong("no brick");
            }
            String kind = name.substring(0, Math.max(0, name.indexOf(':')));
            switch (kind) {
                case "DISTRIBUTE":
                    // A file is in one part. A directory is in all.
                    if (children.size() != 1) {
                        throw wrong("several parts of a distributed volume");
                    }
                    return children.get(0);
                case "REPLICATE": {
                    List<String> servers = new ArrayList<>();
                    for (List<List<String>> child : children) {
                        if (child.size() != 1) {
                            throw wrong("stripes within replicas");
                        }
                        servers.addAll(child.get(0));
                    }
                    return Collections.singletonList(servers);
                }
                case "STRIPE": {
                    if (striped) {
                        throw wrong("stripes within stripes");
                    }
                    striped = true;
                    int open = name.lastIndexOf(":[");
                    if (open < 0 || !name.endsWith("]")) {
                        throw wrong("no size of a stripe");
                    }
                    unit = Long.parseLong(name.substring(open + 2, name.length() - 1));
                    List<List<String>> columns = new ArrayList<>();
                    for (List<List<String>> child : children) {
                        if (child.size() != 1) {
                            throw wrong("several columns in a stripe");
                        }
                        columns.add(child.get(0));
                    }
                    return columns;
                }
                case "EC":
                    // Each brick has a fragment of each part: a read needs several bricks wherever it is done.
                    return Collections.emptyList();
                default:
                    throw wrong("unknown kind " + kind);
            }
        }

        /** Reads {@code <POSIX(BRICK):SERVER:PATH>}; older versions have no brick. */
        private String brick() {
            take("<POSIX");
            if (s.startsWith("(", at)) {
                int close = s.indexOf("):", at);
                if (close < 0) {
                    throw wrong("no end of a brick");
                }
                at = close + 1;
            }
            take(":");
            int end = s.indexOf(":/", at);
            int close = end < 0 ? -1 : s.indexOf('>', end);
            if (close < 0) {
                throw wrong("no path of a brick");
            }
            String server = s.substring(at, end);
            at = close + 1;
            return Hosts.checked(server);
        }

        private void skipSpace() {
            while (at < s.length() && Character.isWhitespace(s.charAt(at))) {
                at++;
            }
        }

        private void take(String expected) {
            if (!s.startsWith(expected, at)) {
                throw wrong("no " + expected);
            }
            at += expected.length();
        }

        void end() {
            skipSpace();
            if (at < s.length()) {
                throw wrong("more after the end");
            }
        }

        private IllegalArgumentException wrong(String what) {
            return new IllegalArgumentException(what + " at " + at);
        }
    }
}
