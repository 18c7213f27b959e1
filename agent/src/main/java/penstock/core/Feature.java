package penstock.core;

import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * Points that belong together: the agent instruments all of them or none. Each role has a list of features. The first
 * one is needed by all others. Several features of the same name are alternatives for different releases of the host:
 * the agent takes the first one of which nothing is missing.
 */
public final class Feature {
    /** Names what is governed, for logs and the MBean. */
    public final String name;
    public final List<Point> points;
    /** Fields that must exist although no advice names them. */
    public final List<ReflectedField> fields;
    /** A class without which the host has nothing of this feature, so that nothing is missing; or null. */
    public final String onlyWith;

    public Feature(String name, Point... points) {
        this(name, null, Arrays.asList(points), Collections.<ReflectedField>emptyList());
    }

    private Feature(String name, String onlyWith, List<Point> points, List<ReflectedField> fields) {
        this.name = name;
        this.onlyWith = onlyWith;
        this.points = Collections.unmodifiableList(points);
        this.fields = Collections.unmodifiableList(fields);
    }

    /** Returns the feature with these fields. */
    public Feature reading(ReflectedField... read) {
        return new Feature(name, onlyWith, points, Arrays.asList(read));
    }

    /** Returns the feature for hosts with this class only. */
    public Feature onlyWith(String type) {
        return new Feature(name, type, points, fields);
    }
}
