package penstock.core;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * The agent's half of the frame format, version 4: it writes HELLO, OPEN, PROGRESS and CLOSE, and reads WELCOME, MARK
 * and HEARTBEAT. wire/README.md describes the bytes. The tests of this codec and of the daemon's codec read the same
 * vectors, wire/testdata/vectors.json. Every limit is checked in both directions. The connection to a daemon that sends
 * invalid frames is closed, which opens the gates.
 */
public final class Frames extends Values {
    private Frames() { }

    /** Reports an invalid frame, in either direction. */
    static final class Refused extends Exception {
        private static final long serialVersionUID = 1;

        Refused(String reason) {
            super(reason);
        }
    }

    /** Receives the daemon's messages. */
    interface Handler {
        /** @param devices the device number of each directory, in the order of the HELLO */
        void welcome(int mode, int stride, int heartbeatMillis, byte[] devices) throws Refused;

        void mark(int stream, long position);

        /**
         * @param alive a bit for each device that lives
         * @param free a bit for each device whose small reads need not wait
         */
        void heartbeat(long tick, int mode, long alive, long free);
    }

    static void hello(ByteBuffer out, int pid, int role, String agent, String flow, int threads,
            List<String> directories) throws Refused {
        int start = begin(out, HELLO);
        out.putInt(pid).put((byte) role);
        string(out, agent, 0, MAX_AGENT);
        string(out, flow, 0, MAX_FLOW);
        out.putInt(threads);
        check(directories.size() <= MAX_DIRECTORIES, "more than 256 directories");
        out.putShort((short) directories.size());
        for (String directory : directories) {
            string(out, directory, 1, MAX_PATH);
        }
        end(out, start);
    }

    static void open(ByteBuffer out, int stream, boolean write, int kind, boolean refusable, boolean passing,
            int patienceMillis, String flow, String path, String meta, Peer peer, long from, long to) throws Refused {
        check(from >= 0 && (to >= from || write && to == 0), "offset out of range");
        check(!passing || !write, "a write that passes");
        int start = begin(out, OPEN);
        out.putInt(stream).put((byte) (write ? 2 : 1)).put((byte) kind);
        out.put((byte) ((refusable ? 1 : 0) | (passing ? 2 : 0))).putInt(patienceMillis);
        string(out, flow, 1, MAX_FLOW);
        string(out, path, 1, MAX_PATH);
        string(out, meta, 0, MAX_PATH);
        string(out, peer.client, 0, MAX_ADDRESS);
        string(out, peer.server, 0, MAX_ADDRESS);
        string(out, peer.user, 0, MAX_USER);
        out.putLong(from).putLong(to);
        end(out, start);
    }

    static void progress(ByteBuffer out, int stream, long position) throws Refused {
        check(position >= 0, "offset out of range");
        int start = begin(out, PROGRESS);
        out.putInt(stream).putLong(position);
        end(out, start);
    }

    static void close(ByteBuffer out, int stream, long position, boolean failed) throws Refused {
        check(position >= 0, "offset out of range");
        int start = begin(out, CLOSE);
        out.putInt(stream).putLong(position).put((byte) (failed ? 1 : 0));
        end(out, start);
    }

    /**
     * Reads the complete frames from the buffer in, which must be in read mode, and leaves an incomplete frame there.
     */
    static void read(ByteBuffer in, Handler handler) throws Refused {
        while (in.remaining() >= HEADER) {
            int at = in.position();
            int length = in.getShort(at) & 0xffff;
            int type = in.get(at + 2) & 0xff;
            int version = in.get(at + 3) & 0xff;
            check(length <= MAX_PAYLOAD, "oversized frame");
            if (in.remaining() < HEADER + length) {
                return;
            }
            check(version == VERSION, "the daemon has version " + version + " of the frames, this agent " + VERSION
                    + ": " + (version < VERSION ? "upgrade and restart the daemon" : "restart this process with a newer agent"));
            in.position(at + HEADER);
            message(in, type, length, handler);
        }
    }

    private static void message(ByteBuffer in, int type, int length, Handler handler) throws Refused {
        switch (type) {
            case WELCOME: {
                check(length >= 9, "WELCOME of " + length + " bytes");
                int mode = mode(in);
                int stride = in.getInt();
                int heartbeatMillis = in.getShort() & 0xffff;
                check(stride >= 1 && stride <= MAX_STRIDE, "stride out of range");
                check(heartbeatMillis >= 1, "heartbeat out of range");
                byte[] devices = new byte[in.getShort() & 0xffff];
                check(devices.length <= MAX_DIRECTORIES, "more than 256 directories");
                check(length == 9 + devices.length, "WELCOME of " + length + " bytes");
                in.get(devices);
                for (byte device : devices) {
                    check(device >= 0 && device <= MAX_DEVICE, "device out of range");
                }
                handler.welcome(mode, stride, heartbeatMillis, devices);
                return;
            }
            case MARK: {
                check(length == 12, "MARK of " + length + " bytes");
                int stream = in.getInt();
                long position = in.getLong();
                check(position >= 0, "mark out of range");
                handler.mark(stream, position);
                return;
            }
            case HEARTBEAT: {
                check(length == 25, "HEARTBEAT of " + length + " bytes");
                long tick = in.getLong();
                int mode = mode(in);
                long alive = in.getLong();
                long free = in.getLong();
                check((free & 1L << NETWORK_DEVICE) == 0, "free network");
                handler.heartbeat(tick, mode, alive, free);
                return;
            }
            default:
                throw new Refused("frame of type " + type);
        }
    }

    private static int mode(ByteBuffer in) throws Refused {
        int mode = in.get() & 0xff;
        check(mode <= ENFORCE, "mode " + mode);
        return mode;
    }

    private static int begin(ByteBuffer out, int type) {
        int start = out.position();
        out.putShort((short) 0).put((byte) type).put((byte) VERSION);
        return start;
    }

    private static void end(ByteBuffer out, int start) throws Refused {
        int length = out.position() - start - HEADER;
        check(length <= MAX_PAYLOAD, "frame too long");
        out.putShort(start, (short) length);
    }

    private static void string(ByteBuffer out, String s, int low, int high) throws Refused {
        check(s.length() >= low && s.length() <= high && s.indexOf('\0') < 0, "string out of bounds");
        ByteBuffer bytes;
        try {
            bytes = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(s));
        } catch (CharacterCodingException e) {
            throw new Refused("string is not Unicode");
        }
        check(bytes.remaining() <= high, "string out of bounds");
        check(bytes.remaining() + 2 <= out.remaining(), "frame too long");
        out.putShort((short) bytes.remaining()).put(bytes);
    }

    private static void check(boolean ok, String otherwise) throws Refused {
        if (!ok) {
            throw new Refused(otherwise);
        }
    }
}
