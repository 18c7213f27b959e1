package penstock.core;

/** A field that is read by reflection, so that no advice contains it. */
public final class ReflectedField {
    public final String type;
    public final String name;
    public final String descriptor;

    public ReflectedField(String type, String name, String descriptor) {
        this.type = type;
        this.name = name;
        this.descriptor = descriptor;
    }
}
