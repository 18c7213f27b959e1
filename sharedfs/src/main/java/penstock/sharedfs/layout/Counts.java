package penstock.sharedfs.layout;

import java.lang.management.ManagementFactory;
import java.util.concurrent.atomic.LongAdder;
import javax.management.InstanceAlreadyExistsException;
import javax.management.JMException;
import javax.management.ObjectName;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The counts of this JVM, for JMX. */
public final class Counts implements SharedFileSystemMXBean {
    public static final String NAME = "penstock:type=SharedFileSystem";
    private static final Logger LOG = LoggerFactory.getLogger(Counts.class);
    public static final Counts THIS_JVM = new Counts();

    final LongAdder asked = new LongAdder();
    final LongAdder remembered = new LongAdder();
    final LongAdder unanswered = new LongAdder();
    final LongAdder notAsked = new LongAdder();
    final LongAdder failures = new LongAdder();
    final LongAdder createdNear = new LongAdder();
    final LongAdder createdAnywhere = new LongAdder();
    public final LongAdder turns = new LongAdder();
    public final LongAdder turnsPassed = new LongAdder();
    public final LongAdder turnsNotAsked = new LongAdder();

    /** Registers the MBean, once in a JVM. */
    public static void register() {
        try {
            ManagementFactory.getPlatformMBeanServer().registerMBean(THIS_JVM, new ObjectName(NAME));
        } catch (InstanceAlreadyExistsException e) {
            // Another file system of this JVM has done it.
        } catch (JMException | RuntimeException e) {
            LOG.warn("no MBean {}: {}", NAME, e.toString());
        }
    }

    @Override
    public long getAsked() {
        return asked.sum();
    }

    @Override
    public long getRemembered() {
        return remembered.sum();
    }

    @Override
    public long getUnanswered() {
        return unanswered.sum();
    }

    @Override
    public long getNotAsked() {
        return notAsked.sum();
    }

    @Override
    public long getFailures() {
        return failures.sum();
    }

    @Override
    public long getCreatedNear() {
        return createdNear.sum();
    }

    @Override
    public long getCreatedAnywhere() {
        return createdAnywhere.sum();
    }

    @Override
    public long getTurns() {
        return turns.sum();
    }

    @Override
    public long getTurnsPassed() {
        return turnsPassed.sum();
    }

    @Override
    public long getTurnsNotAsked() {
        return turnsNotAsked.sum();
    }
}
