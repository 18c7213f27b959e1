package penstock.sharedfs.contract;

import java.io.IOException;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileContextMainOperationsBaseTest;
import org.apache.hadoop.fs.Path;
import penstock.sharedfs.TestMount;

public class FileContextOperationsTest extends FileContextMainOperationsBaseTest {
    private Path home;

    @Override
    public void setUp() throws Exception {
        fc = FileContext.getFileContext(TestMount.configuration());
        home = fc.getHomeDirectory();
        super.setUp();
    }

    @Override
    protected Path getDefaultWorkingDirectory() throws IOException {
        return home;
    }

    @Override
    protected boolean listCorruptedBlocksSupported() {
        return false;
    }
}
