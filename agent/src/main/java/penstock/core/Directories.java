package penstock.core;

import java.util.Collections;
import java.util.List;

/** The directories of a connection, with the device of each. */
final class Directories {
    static final Directories NONE = new Directories(Collections.emptyList(), new byte[0]);

    final List<String> paths;
    final byte[] devices;

    Directories(List<String> paths, byte[] devices) {
        this.paths = paths;
        this.devices = devices;
    }

    /** Finds the device as the daemon does: by the longest governed directory above the file. */
    int deviceOf(int kind, String file) {
        if (kind == Frames.NETWORK) {
            return Frames.NETWORK_DEVICE;
        }
        int device = Beats.ALL;
        int longest = -1;
        for (int i = 0; i < devices.length; i++) {
            String path = paths.get(i);
            int length = path.endsWith("/") ? path.length() - 1 : path.length();
            if (devices[i] != 0 && length > longest && file.length() > length && file.charAt(length) == '/'
                    && file.regionMatches(0, path, 0, length)) {
                device = devices[i];
                longest = length;
            }
        }
        return device;
    }
}
