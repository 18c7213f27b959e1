package penstock.spark;

import java.io.File;

/** A file, and the application that the request for its block names. */
final class RequestedFile extends File {
    private static final long serialVersionUID = 1;

    final String flow;

    RequestedFile(File file, String flow) {
        super(file.getPath());
        this.flow = flow;
    }
}
