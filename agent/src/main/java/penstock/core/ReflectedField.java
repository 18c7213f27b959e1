package penstock.core;

/** A field that is read by reflection, and so is in no advice. */
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
