package penstock.core;

/** The version, limits and enumerations of the frame format, as in wire/README.md. */
public abstract class Values {
    static final int VERSION = 4;
    static final int HEADER = 4;
    static final int MAX_PAYLOAD = 12288;
    static final int MAX_FRAME = HEADER + MAX_PAYLOAD;
    static final int MAX_AGENT = 128;
    static final int MAX_FLOW = 128;
    static final int MAX_PATH = 4095;
    static final int MAX_ADDRESS = 64;
    static final int MAX_USER = 128;
    static final int MAX_DIRECTORIES = 256;
    static final int MAX_STRIDE = 1 << 30;
    /** The largest device number; a directory that is not governed has number 0. */
    static final int MAX_DEVICE = 63;
    /** The largest range of a read that does not wait for its marks while its device is free. */
    static final int MAX_PASSING = 128 << 10;
    /** The bit of a HEARTBEAT's devices that stands for the network. */
    static final int NETWORK_DEVICE = 0;
    /** The MARK by which the daemon refuses an operation. The agent then ends the operation, if it still can. */
    public static final long REFUSED = Long.MAX_VALUE - 1;

    public static final int HELLO = 1;
    static final int WELCOME = 2;
    public static final int OPEN = 3;
    public static final int PROGRESS = 4;
    static final int MARK = 5;
    public static final int CLOSE = 6;
    static final int HEARTBEAT = 7;

    static final int OFF = 0;
    static final int OBSERVE = 1;
    public static final int ENFORCE = 2;

    static final int DATANODE = 1;
    static final int TASK = 2;
    public static final int NODEMANAGER = 3;
    static final int EXECUTOR = 4;
    public static final int WORKER = 5;

    static final int PERSISTENT = 0;
    public static final int INTERMEDIATE = 1;
    public static final int NETWORK = 2;
}
