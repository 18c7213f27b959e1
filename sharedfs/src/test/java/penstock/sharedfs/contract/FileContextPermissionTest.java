package penstock.sharedfs.contract;

import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileContextPermissionBase;
import penstock.sharedfs.TestMount;

public class FileContextPermissionTest extends FileContextPermissionBase {
    @Override
    protected FileContext getFileContext() throws Exception {
        return FileContext.getFileContext(TestMount.configuration());
    }
}
