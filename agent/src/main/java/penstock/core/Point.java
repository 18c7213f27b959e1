package penstock.core;

/** One method and its advice; a list of them is what a role weaves. */
public final class Point {
    public final String type;
    public final String method;
    public final String descriptor;
    public final String advice;

    /** The method is named as in a class file, so a constructor is &lt;init&gt;. */
    public Point(String type, String method, String descriptor, Class<?> advice) {
        this.type = type;
        this.method = method;
        this.descriptor = descriptor;
        this.advice = advice.getName();
    }
}
