package penstock.agent;

import java.lang.management.ManagementFactory;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/**
 * The main class of a JVM with the agent. It only loads the given classes, which verifies them, and prints the results.
 */
public final class Probe {
    private Probe() { }

    /** Prints a line for each class, "type woven|plain jar", and then the agent's MBean. */
    public static void main(String[] types) throws Exception {
        for (String type : types) {
            Class<?> c = Class.forName(type);
            boolean woven = false;
            for (java.lang.reflect.Field field : c.getDeclaredFields()) {
                woven |= field.getName().equals("penstock$stream");
            }
            String where = c.getProtectionDomain().getCodeSource().getLocation().getPath();
            System.out.println(type + " " + (woven ? "woven" : "plain") + " " + where);
        }
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        ObjectName name = new ObjectName("penstock:type=Agent");
        while (!server.isRegistered(name)) {
            Thread.onSpinWait();
        }
        System.out.println("state " + server.getAttribute(name, "State"));
        System.out.println("methods " + ((String[]) server.getAttribute(name, "WovenMethods")).length);
        System.out.println("missing " + String.join(" ", (String[]) server.getAttribute(name, "Missing")));
        System.out.println("left out " + String.join(" ", (String[]) server.getAttribute(name, "LeftOut")));
        System.out.println("suppressed " + server.getAttribute(name, "Suppressed"));
    }
}
