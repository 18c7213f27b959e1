package hadoop

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
)

// Balance runs HDFS's balancer for one iteration, or until the cluster is balanced if that is
// earlier. A cluster is balanced if no DataNode's used percentage of its capacity differs from the
// mean by more than the given percentage, 1 to 100. Further iterations are not possible, because
// the balancer of Hadoop 3.4.2 fails in its second iteration, when it registers its metrics again.
func (c *Cluster) Balance(ctx context.Context, percent int) error {
	name := fmt.Sprintf("balancer-%d", c.runs.Add(1))
	log, err := c.tool(ctx, name, 256, "org.apache.hadoop.hdfs.server.balancer.Balancer", "-threshold", strconv.Itoa(percent))
	if err != nil && ctx.Err() == nil {
		if out, unread := os.ReadFile(log); unread == nil && moved.Match(out) && again.Match(out) {
			return nil
		}
	}
	return err
}

var (
	moved = regexp.MustCompile(`Total bytes \(blocks\) moved in this iteration`)
	again = regexp.MustCompile(`MetricsException: Metrics source Balancer-\S+ already exists`)
)
