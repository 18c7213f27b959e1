package penstock.sharedfs.contract;

import java.net.URI;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileSystemContractBaseTest;
import org.junit.Before;
import penstock.sharedfs.TestMount;

public class FileSystemTest extends FileSystemContractBaseTest {
    @Before
    public void start() throws Exception {
        fs = FileSystem.newInstance(URI.create("shared:///"), TestMount.configuration());
    }
}
