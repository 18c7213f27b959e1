package penstock.core;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/** All tests of gates with a loopback connection, as on a JVM without Unix sockets. */
class GatesLoopbackTest extends GatesTest {
    GatesLoopbackTest() {
        transport = "loopback";
    }

    @BeforeEach
    void chooseLoopback() {
        System.setProperty(Transport.PROPERTY, transport);
    }

    @AfterEach
    void chooseByFeature() {
        System.clearProperty(Transport.PROPERTY);
    }
}
