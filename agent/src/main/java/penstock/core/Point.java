package penstock.core;

/** A method and its advice; each role has a list of them. */
public final class Point {
    public final String type;
    public final String method;
    public final String descriptor;
    public final String advice;

    /** The method's name is its name in the class file: &lt;init&gt; for a constructor. */
    public Point(String type, String method, String descriptor, Class<?> advice) {
        this(type, method, descriptor, advice.getName());
    }

    public Point(String type, String method, String descriptor, String advice) {
        this.type = type;
        this.method = method;
        this.descriptor = descriptor;
        this.advice = advice;
    }
}
