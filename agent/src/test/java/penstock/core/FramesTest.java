package penstock.core;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.DynamicTest.dynamicTest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import penstock.core.TestDaemon.Heard;

/** Tests the agent's codec with the vectors that the Go tests also read. */
class FramesTest {
    private static final Set<String> FROM_AGENT = Set.of("hello", "open", "progress", "close");

    @TestFactory
    Stream<DynamicTest> vectors() throws IOException {
        JsonNode all = new ObjectMapper().readTree(new File("../wire/testdata/vectors.json"));
        return StreamSupport.stream(all.spliterator(), false)
                .map(v -> dynamicTest(v.get("name").asText(), () -> check(v)));
    }

    private static void check(JsonNode v) throws Frames.Refused {
        byte[] frame = HexFormat.of().parseHex(v.get("hex").asText());
        JsonNode m = v.get("message");
        if (m == null) {
            refuses(v.get("error").asText(), frame);
        } else if (FROM_AGENT.contains(m.get("type").asText())) {
            ByteBuffer out = ByteBuffer.allocate(Frames.MAX_FRAME);
            write(m, out);
            assertArrayEquals(frame, Arrays.copyOf(out.array(), out.position()));
        } else {
            Heard heard = new Heard();
            // Byte by byte: a frame is read when it is complete, and not before.
            for (int n = 0; n < frame.length; n++) {
                ByteBuffer in = ByteBuffer.wrap(frame, 0, n);
                Frames.read(in, heard);
                assertEquals(0, in.position());
            }
            ByteBuffer in = ByteBuffer.wrap(frame);
            Frames.read(in, heard);
            assertFalse(in.hasRemaining());
            assertEquals(List.of(expected(m)), heard.said);
        }
    }

    private static void refuses(String error, byte[] frame) throws Frames.Refused {
        ByteBuffer in = ByteBuffer.wrap(frame);
        if (error.equals("eof") || error.equals("cut off")) {
            Frames.read(in, new Heard());
            assertEquals(0, in.position());
            return;
        }
        Heard heard = new Heard();
        assertThrows(Frames.Refused.class, () -> Frames.read(in, heard));
        assertEquals(List.of(), heard.said);
    }

    private static void write(JsonNode m, ByteBuffer out) throws Frames.Refused {
        switch (m.get("type").asText()) {
            case "hello":
                List<String> directories = new ArrayList<>();
                m.get("directories").forEach(d -> directories.add(d.asText()));
                Frames.hello(out, (int) m.get("pid").asLong(), m.get("role").asInt(), m.get("agent").asText(),
                        m.get("flow").asText(), (int) m.get("threads").asLong(), directories);
                break;
            case "open":
                Frames.open(out, stream(m), m.get("direction").asInt() == 2, m.get("kind").asInt(),
                        m.get("refusable").asBoolean(), m.path("passing").asBoolean(),
                        (int) m.get("patience").asLong(), m.get("flow").asText(),
                        m.get("path").asText(), m.get("meta").asText(),
                        new Peer(m.get("client").asText(), m.get("server").asText(), m.get("user").asText()),
                        m.get("from").asLong(), m.get("to").asLong());
                break;
            case "progress":
                Frames.progress(out, stream(m), m.get("position").asLong());
                break;
            default:
                Frames.close(out, stream(m), m.get("position").asLong(), m.get("failed").asBoolean());
        }
    }

    private static String expected(JsonNode m) {
        switch (m.get("type").asText()) {
            case "welcome":
                return "welcome " + m.get("mode") + " " + m.get("stride") + " " + m.get("heartbeat_ms") + " "
                        + StreamSupport.stream(m.get("devices").spliterator(), false).map(JsonNode::asText).toList();
            case "mark":
                return "mark " + stream(m) + " " + m.get("position");
            default:
                return "heartbeat " + m.get("tick") + " " + m.get("mode") + " " + m.get("alive") + " "
                        + m.get("free");
        }
    }

    /** Stream numbers are ints in the agent and unsigned on the wire, with the same bits. */
    private static int stream(JsonNode m) {
        return (int) m.get("stream").asLong();
    }

    private static final class Heard implements Frames.Handler {
        final List<String> said = new ArrayList<>();

        @Override
        public void welcome(int mode, int stride, int heartbeatMillis, byte[] devices) {
            said.add("welcome " + mode + " " + stride + " " + heartbeatMillis + " " + Arrays.toString(devices));
        }

        @Override
        public void mark(int stream, long position) {
            said.add("mark " + stream + " " + position);
        }

        @Override
        public void heartbeat(long tick, int mode, long alive, long free) {
            said.add("heartbeat " + tick + " " + mode + " " + Long.toUnsignedString(alive) + " "
                    + Long.toUnsignedString(free));
        }
    }

    @Test
    void refusesToWriteOutOfBounds() {
        ByteBuffer out = ByteBuffer.allocate(2 * Frames.MAX_FRAME);
        String longPath = "/" + "p".repeat(Frames.MAX_PATH - 1);
        assertThrows(Frames.Refused.class,
                () -> Frames.hello(out, 1, 1, "", "", 0, List.of(longPath, longPath, longPath)));
        assertThrows(Frames.Refused.class,
                () -> Frames.open(out, 1, false, 0, false, false, 0, "f", "/b", "",
                        new Peer("c".repeat(65), "", ""), 0, 1));
        assertThrows(Frames.Refused.class,
                () -> Frames.open(out, 1, false, 0, false, false, 0, "f", longPath + "p", "", Peer.UNKNOWN, 0, 1));
        assertThrows(Frames.Refused.class,
                () -> Frames.open(out, 1, false, 0, false, false, 0, "f", "/" + "\u00e9".repeat(2048), "", Peer.UNKNOWN,
                        0, 1));
        assertThrows(Frames.Refused.class,
                () -> Frames.open(out, 1, false, 0, false, false, 0, "f", "/\ud800", "", Peer.UNKNOWN, 0, 1));
        assertThrows(Frames.Refused.class,
                () -> Frames.open(out, 1, false, 0, false, false, 0, "f", "/\0", "", Peer.UNKNOWN, 0, 1));
        assertThrows(Frames.Refused.class,
                () -> Frames.open(out, 1, false, 0, false, false, 0, "", "/b", "", Peer.UNKNOWN, 0, 1));
        assertThrows(Frames.Refused.class,
                () -> Frames.open(out, 1, false, 0, false, false, 0, "f", "/b", "", Peer.UNKNOWN, 2, 1));
        assertThrows(Frames.Refused.class,
                () -> Frames.open(out, 1, true, 0, false, true, 0, "f", "/b", "", Peer.UNKNOWN, 0, 1));
        assertThrows(Frames.Refused.class, () -> Frames.progress(out, 1, -1));
        assertThrows(Frames.Refused.class, () -> Frames.close(out, 1, -1, false));
    }

    /** A daemon of another release answers in its own version. The reason, which is logged, says what to do. */
    @Test
    void anotherVersionSaysWhatToDo() {
        for (int difference : new int[] {-1, 1}) {
            byte[] frame = {0, 0, (byte) Frames.WELCOME, (byte) (Frames.VERSION + difference)};
            String reason = assertThrows(Frames.Refused.class, () -> Frames.read(ByteBuffer.wrap(frame), new Heard()))
                    .getMessage();
            assertTrue(reason.endsWith(difference < 0 ? "restart the daemon" : "with a newer agent"), reason);
        }
    }

    /** Random bytes are read, left until the frame is complete, or refused. The seed makes a failure repeatable. */
    @Test
    void surviveNoise() {
        long seed = 20260101;
        Random random = new Random(seed);
        for (int i = 0; i < 20_000; i++) {
            byte[] noise = new byte[random.nextInt(64)];
            random.nextBytes(noise);
            if (noise.length > 4) {
                noise[0] = 0;
                noise[1] = (byte) random.nextInt(16);
                noise[2] = (byte) random.nextInt(9);
                noise[3] = Frames.VERSION;
            }
            ByteBuffer in = ByteBuffer.wrap(noise);
            try {
                Frames.read(in, new Heard());
            } catch (Frames.Refused refused) {
                continue;
            } catch (RuntimeException e) {
                throw new AssertionError("seed " + seed + ", round " + i + ": " + HexFormat.of().formatHex(noise), e);
            }
        }
    }
}
