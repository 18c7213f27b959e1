package penstock.sharedfs.layout;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import penstock.sharedfs.TestMount;

class HostsTest {
    private static Hosts of(String text) throws IOException {
        Path file = TestMount.create().resolve("hosts");
        Files.writeString(file, text);
        return Hosts.read(file.toString());
    }

    @Test
    void serversGetTheNamesOfTheFile() throws IOException {
        Hosts hosts = of("# storage network\n10.0.0.1 node1.example.com # the first\n\n10.0.0.2@o2ib1\tnode2\n");
        assertEquals("node1.example.com", hosts.of("10.0.0.1"));
        assertEquals("node1.example.com", hosts.of("10.0.0.1@tcp"));
        assertEquals("node2", hosts.of("10.0.0.2@o2ib1"));
        assertEquals("10.0.0.2", hosts.of("10.0.0.2@tcp"));
        assertEquals("other", hosts.of("other"));
    }

    @Test
    void aWrongLineIsAnErrorWithItsNumber() {
        IOException e = assertThrows(IOException.class, () -> of("a b\na b c\n"));
        assertTrue(e.getMessage().contains(":2:"), e.getMessage());
    }

    @Test
    void thisMachineIsLocal() throws IOException {
        assertTrue(of("10.99.0.1 " + Hosts.hostName() + "\n").isLocal("10.99.0.1@tcp"));
        assertFalse(of("").isLocal("10.99.0.1@tcp"));
    }
}
