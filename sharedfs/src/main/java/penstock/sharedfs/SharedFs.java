package penstock.sharedfs;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;

/**
 * {@link SharedFileSystem} for Hadoop's FileContext, which YARN and MapReduce use: the value of
 * {@code fs.AbstractFileSystem.shared.impl}.
 */
public final class SharedFs extends DelegateToFileSystem {
    /** Called by Hadoop. */
    public SharedFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(uri, new SharedFileSystem(), conf, SharedFileSystem.SCHEME, false);
    }

    @Override
    public int getUriDefaultPort() {
        return -1;
    }

    /** Replaces an existing file in one step. The method that this overrides deletes it first. */
    @Override
    public void renameInternal(Path from, Path to, boolean overwrite) throws IOException {
        ((SharedFileSystem) fsImpl).rename(from, to, overwrite ? Options.Rename.OVERWRITE : Options.Rename.NONE);
    }
}
