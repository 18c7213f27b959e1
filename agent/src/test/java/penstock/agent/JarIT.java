package penstock.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.DataInputStream;
import java.util.Collections;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.junit.jupiter.api.Test;

/**
 * Tests the contents of the jar. The jar is on a DataNode's class path, so it may contain only packages of its own;
 * other packages could clash.
 */
class JarIT {
    static final String JAR = System.getProperty("penstock.agent.jar");

    @Test
    void holdsItsOwnPackagesForJava8() throws Exception {
        int classes = 0;
        try (JarFile jar = new JarFile(JAR)) {
            assertEquals("penstock.agent.Agent", jar.getManifest().getMainAttributes().getValue("Premain-Class"));
            for (JarEntry entry : Collections.list(jar.entries())) {
                String name = entry.getName();
                assertTrue(name.startsWith("penstock/") || name.matches("META-INF/(MANIFEST\\.MF|LICENSE|NOTICE|licenses/.*)?"),
                        name + " has no place in the jar");
                if (name.endsWith(".class")) {
                    classes++;
                    assertTrue(name.matches("penstock/(agent|core|hdfs|shuffle|task|spark)/.*"), name);
                    try (DataInputStream in = new DataInputStream(jar.getInputStream(entry))) {
                        assertEquals(0xCAFEBABE, in.readInt(), name);
                        in.readUnsignedShort();
                        int major = in.readUnsignedShort();
                        assertTrue(major <= 52, name + " is of class version " + major);
                    }
                }
            }
        }
        assertTrue(classes > 100, "the weaver is not packed");
    }
}
