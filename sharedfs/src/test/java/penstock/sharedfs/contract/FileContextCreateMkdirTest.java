package penstock.sharedfs.contract;

import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileContextCreateMkdirBaseTest;
import penstock.sharedfs.TestMount;

public class FileContextCreateMkdirTest extends FileContextCreateMkdirBaseTest {
    @Override
    public void setUp() throws Exception {
        fc = FileContext.getFileContext(TestMount.configuration());
        super.setUp();
    }
}
