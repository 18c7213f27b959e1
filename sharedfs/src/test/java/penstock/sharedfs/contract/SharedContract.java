package penstock.sharedfs.contract;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import penstock.sharedfs.TestMount;

/** What {@code shared:} promises of Hadoop's contract: contract/shared.xml. Each contract has a mount of its own. */
final class SharedContract extends AbstractFSContract {
    private final FileSystem fs;

    SharedContract(Configuration conf) {
        super(conf);
        addConfResource("contract/shared.xml");
        Path mount = TestMount.create();
        TestMount.configure(getConf(), mount);
        try {
            fs = FileSystem.newInstance(URI.create("shared:///"), getConf());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public FileSystem getTestFileSystem() {
        return fs;
    }

    @Override
    public String getScheme() {
        return "shared";
    }

    @Override
    public org.apache.hadoop.fs.Path getTestPath() {
        return new org.apache.hadoop.fs.Path("/test");
    }
}
