package penstock.spark;

import java.io.File;

/** A file with the application whose block somebody has requested. */
final class RequestedFile extends File {
    private static final long serialVersionUID = 1;

    final String flow;

    RequestedFile(File file, String flow) {
        super(file.getPath());
        this.flow = flow;
    }
}
