package penstock.hdfs;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.datanode.StorageLocation;

/** The data directories of a DataNode. */
public final class Volumes {
    private Volumes() { }

    /** Returns the directories of the DataNode's configuration, which Hadoop changes with the volumes. */
    public static List<String> of(DataNode node) {
        List<String> directories = new ArrayList<>();
        for (StorageLocation location : DataNode.getStorageLocations(node.getConf())) {
            if (location.getUri() != null && location.getUri().getPath() != null) {
                directories.add(location.getUri().getPath());
            }
        }
        return directories;
    }
}
