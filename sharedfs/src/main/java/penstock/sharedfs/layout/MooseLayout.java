package penstock.sharedfs.layout;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import penstock.sharedfs.layout.Placement.Run;

/** MooseFS: mfsfileinfo lists a file's chunks, and the chunk servers of each. */
final class MooseLayout implements Layout {
    /** Bytes of a chunk, the same in all of MooseFS. */
    static final long CHUNK = 64L << 20;
    private static final Pattern CHUNK_LINE = Pattern.compile("\tchunk (\\d{1,9}): .*");
    private static final Pattern COPY_LINE = Pattern.compile("\t\tcopy \\d+: ([^ ]+):\\d+\\b(.*)");
    private static final Pattern STATUS = Pattern.compile(".*\\bstatus:([A-Z ,]+)\\)?.*");

    private final Tool tool;
    private final String storageClass;

    /** @param storageClass the class of files that are created near this machine; empty if there is none */
    MooseLayout(Tool tool, String storageClass) {
        this.tool = tool;
        this.storageClass = storageClass;
    }

    @Override
    public Map<String, Placement> ask(List<String> files) throws IOException {
        Tool.Answer answer = tool.run("mfsfileinfo", files);
        Map<String, Placement> placements = parse(answer.text);
        if (placements.isEmpty()) {
            throw Tool.useless("mfsfileinfo", files, answer);
        }
        return placements;
    }

    @Override
    public long blockSize() {
        return CHUNK;
    }

    @Override
    public void createNear(String file) throws IOException {
        if (storageClass.isEmpty()) {
            throw new IOException("no storage class: set " + Setup.MOOSEFS_CLASS);
        }
        Files.createFile(Paths.get(file));
        List<String> arguments = Arrays.asList(storageClass, file);
        Tool.Answer answer = tool.run("mfssetsclass", arguments);
        if (answer.exit != 0) {
            throw Tool.useless("mfssetsclass", arguments, answer);
        }
    }

    /**
     * Reads what mfsfileinfo writes: "NAME:", a line per chunk, a line per copy. Copies that are not valid are left
     * out, and so are parts of erasure codes, because a read needs several of them.
     */
    static Map<String, Placement> parse(String text) {
        Map<String, Placement> placements = new HashMap<>();
        String file = null;
        List<List<String>> chunks = new ArrayList<>();
        boolean valid = true;
        for (String line : text.split("\n")) {
            Matcher copy;
            Matcher chunk;
            if (!line.startsWith("\t")) {
                finish(file, chunks, valid, placements);
                file = line.startsWith("/") && line.endsWith(":") ? line.substring(0, line.length() - 1) : null;
                chunks = new ArrayList<>();
                valid = true;
            } else if ((chunk = CHUNK_LINE.matcher(line)).matches()) {
                valid &= Integer.parseInt(chunk.group(1)) == chunks.size() && chunks.size() < Placement.MAX_COLUMNS;
                if (valid) {
                    chunks.add(new ArrayList<>());
                }
            } else if ((copy = COPY_LINE.matcher(line)).matches()) {
                valid &= !chunks.isEmpty();
                try {
                    if (valid && readable(copy.group(2))) {
                        chunks.get(chunks.size() - 1).add(Hosts.checked(copy.group(1)));
                    }
                } catch (IllegalArgumentException e) {
                    valid = false;
                }
            }
        }
        finish(file, chunks, valid, placements);
        return placements;
    }

    /** Reports whether a copy with these remarks is read by clients. Old versions make no remark. */
    private static boolean readable(String remarks) {
        Matcher m = STATUS.matcher(remarks);
        if (!m.matches()) {
            return true;
        }
        String status = m.group(1).trim();
        return status.equals("VALID") || status.equals("MARKED FOR REMOVAL");
    }

    private static void finish(String file, List<List<String>> chunks, boolean valid, Map<String, Placement> into) {
        if (file == null || !valid) {
            return;
        }
        into.put(file, chunks.isEmpty() ? Placement.NONE : new Placement(Collections.singletonList(
            new Run(0, chunks.size() * CHUNK, CHUNK, chunks))));
    }
}
