package penstock.sharedfs.layout;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Which servers hold which bytes of one file, as runs. Runs may overlap (mirrors) and may leave gaps, of which nothing
 * is known. A run is a rule and not a list of stripes: a file of 1 TB in stripes of 1 MiB needs no more memory than a
 * small one.
 */
public final class Placement {
    /** Nothing is known. */
    public static final Placement NONE = new Placement(Collections.<Run>emptyList());

    /** The most columns of a run. */
    static final int MAX_COLUMNS = 1 << 16;
    /** The largest unit of a run with several columns, in bytes. */
    static final long MAX_UNIT = 1L << 40;

    private final List<Run> runs;

    Placement(List<Run> runs) {
        this.runs = Collections.unmodifiableList(new ArrayList<>(runs));
    }

    /**
     * The bytes from start to end, dealt out to columns in turns of one unit. The unit with number n from the start of
     * the file, not of the run, is in column n modulo the number of columns.
     */
    static final class Run {
        private final long start;
        private final long end;
        private final long unit;
        private final List<List<String>> columns;

        /**
         * @param columns the servers that each hold all bytes of the column; none if they are not known
         * @throws IllegalArgumentException if the values contradict each other
         */
        Run(long start, long end, long unit, List<List<String>> columns) {
            if (start < 0 || end < start || columns.isEmpty() || columns.size() > MAX_COLUMNS
                    || columns.size() > 1 && (unit <= 0 || unit > MAX_UNIT)) {
                throw new IllegalArgumentException("a run from " + start + " to " + end + " in " + columns.size()
                    + " columns of " + unit + " bytes");
            }
            this.start = start;
            this.end = end;
            this.unit = unit;
            this.columns = columns;
        }

        /** All bytes from start to end on each of the servers. */
        static Run whole(long start, long end, List<String> servers) {
            return new Run(start, end, Long.MAX_VALUE, Collections.singletonList(servers));
        }

        private void add(long from, long to, Map<String, Long> bytes) {
            from = Math.max(from, start);
            to = Math.min(to, end);
            if (from >= to) {
                return;
            }
            int n = columns.size();
            if (n == 1) {
                add(columns.get(0), to - from, bytes);
                return;
            }
            long first = from / unit;
            long touched = Math.min(n, (to - 1) / unit - first + 1);
            for (long i = first; i < first + touched; i++) {
                int column = (int) (i % n);
                add(columns.get(column), before(to, column) - before(from, column), bytes);
            }
        }

        /** Returns how many bytes below offset are in the column. */
        private long before(long offset, int column) {
            long width = unit * columns.size();
            return offset / width * unit + Math.max(0, Math.min(unit, offset % width - column * unit));
        }

        private static void add(List<String> servers, long count, Map<String, Long> bytes) {
            for (String server : servers) {
                bytes.merge(server, count, Long::sum);
            }
        }

        private int names() {
            int sum = 1;
            for (List<String> column : columns) {
                sum += column.size();
            }
            return sum;
        }
    }

    /**
     * Returns the servers that hold more than half of the bytes from start to end, those with most bytes first. A task
     * on any other server would read most of its bytes over the network.
     */
    public List<String> majority(long start, long end) {
        Map<String, Long> bytes = new HashMap<>();
        for (Run run : runs) {
            run.add(start, end, bytes);
        }
        // Two mirrors on one server count once.
        bytes.replaceAll((server, count) -> Math.min(count, end - start));
        List<String> servers = new ArrayList<>();
        for (Map.Entry<String, Long> e : bytes.entrySet()) {
            if (e.getValue() > (end - start) / 2) {
                servers.add(e.getKey());
            }
        }
        servers.sort((a, b) -> {
            int order = Long.compare(bytes.get(b), bytes.get(a));
            return order != 0 ? order : a.compareTo(b);
        });
        return servers;
    }

    /** Returns the number of names and lists in memory, for a cache's bound. */
    int weight() {
        int sum = 1;
        for (Run run : runs) {
            sum += run.names();
        }
        return sum;
    }
}
