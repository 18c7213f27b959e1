package hadoop

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
)

// Balance runs HDFS's balancer for an iteration, or to its end if one is enough, so that no
// DataNode is further from the mean than that many per cent of its capacity, 1 to 100. The
// balancer of Hadoop 3.4.2 does not get to the second: it registers its metrics again, and fails.
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
