package penstock.sharedfs.shuffle;

import java.io.IOException;

/** The map outputs cannot be read in place; the message says why. Hadoop's own shuffle reads them instead. */
final class NotInPlaceException extends IOException {
    private static final long serialVersionUID = 1;

    NotInPlaceException(String reason) {
        super(reason);
    }

    NotInPlaceException(String reason, Throwable cause) {
        super(reason, cause);
    }
}
