package penstock.sharedfs.layout;

import java.io.IOException;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;

/** The settings of layouts, in Hadoop's configuration. */
public final class Setup {
    static final String LAYOUT = "penstock.sharedfs.layout";
    static final String HOSTS = "penstock.sharedfs.hosts";
    static final String CACHE_FILES = "penstock.sharedfs.cache.files";
    static final String CACHE_TIME = "penstock.sharedfs.cache.time";
    static final String TOOLS = "penstock.sharedfs.tools";
    static final String TOOL_TIME = "penstock.sharedfs.tool.time";
    static final String CREATE_NEAR = "penstock.sharedfs.create.near";
    static final String GLUSTER_SHARD = "penstock.sharedfs.gluster.shard";
    static final String GLUSTER_ATTRIBUTE = "penstock.sharedfs.gluster.attribute";
    static final String MOOSEFS_CLASS = "penstock.sharedfs.moosefs.class";

    private Setup() { }

    /**
     * Returns the locator of a mount, or null if no layout is set.
     *
     * @throws IOException if a setting is wrong
     */
    public static Locator locator(Configuration conf, String mount) throws IOException {
        String kind = conf.getTrimmed(LAYOUT, "none");
        if (kind.equals("none")) {
            return null;
        }
        Hosts hosts = Hosts.read(conf.getTrimmed(HOSTS, ""));
        Tool tool = new Tool(conf.getTrimmed(TOOLS, ""), positive(TOOL_TIME,
            conf.getTimeDuration(TOOL_TIME, 5000, TimeUnit.MILLISECONDS)));
        long maxAge = positive(CACHE_TIME,
            conf.getTimeDuration(CACHE_TIME, 60, TimeUnit.SECONDS, TimeUnit.NANOSECONDS));
        Layout layout;
        switch (kind) {
            case "gluster":
                layout = new GlusterLayout(tool, conf.getTrimmed(GLUSTER_ATTRIBUTE, "glusterfs.pathinfo"),
                    conf.getLongBytes(GLUSTER_SHARD, -1));
                break;
            case "moosefs":
                layout = new MooseLayout(tool, conf.getTrimmed(MOOSEFS_CLASS, "").replace("%h", Hosts.hostName()));
                break;
            case "lustre":
                layout = new LustreLayout(tool, mount, hosts, maxAge, System::nanoTime);
                break;
            default:
                throw new IOException(LAYOUT + " is " + kind + "; it can be none, gluster, moosefs or lustre");
        }
        return new Locator(layout, hosts, (int) positive(CACHE_FILES, conf.getInt(CACHE_FILES, 10_000)), maxAge,
            conf.getBoolean(CREATE_NEAR, false), System::nanoTime);
    }

    private static long positive(String setting, long value) throws IOException {
        if (value <= 0) {
            throw new IOException(setting + " is " + value + "; it must be more than 0");
        }
        return value;
    }
}
