package hadoop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"penstock/lab/poll"
)

// Reconfigure changes properties of every running DataNode, as `hdfs dfsadmin -reconfig datanode`
// does, and returns when all DataNodes have applied the changes. An empty value removes a property.
// Unlike a restart, this does not interrupt streams, and JVMs keep their compiled code. Hadoop 3.4
// and 3.5 can change the throttlers' bandwidths in this way
// (dfs.datanode.data.{read,write,transfer}.bandwidthPerSec, whole bytes per second). For a property
// that the running version cannot change, Reconfigure returns an error; the other properties may
// have changed nevertheless. A block transfer in progress keeps its throttler. Reconfigure must not
// be called from several goroutines at once.
func (c *Cluster) Reconfigure(ctx context.Context, settings map[string]string) error {
	now := properties{}
	maps.Copy(now, c.reconfigured)
	var changed []string
	for name, value := range settings {
		if now[name] == value {
			continue
		}
		changed = append(changed, name)
		if now[name] = value; value == "" {
			delete(now, name)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	slices.Sort(changed)
	errs := make(chan error)
	for i := range c.cfg.DataNodes {
		if err := c.ConfigureDataNode(i, now); err != nil {
			return err
		}
	}
	for i := range c.cfg.DataNodes {
		go func() { errs <- c.reconfigure(ctx, i, changed) }()
	}
	var all error
	for range c.cfg.DataNodes {
		all = errors.Join(all, <-errs)
	}
	c.reconfigured = now
	return all
}

// ReconfigureDataNode changes properties of one running DataNode, such as its volumes (dfs.datanode.data.dir), and returns
// when the DataNode has applied them. All versions of Hadoop can change the volumes. A later call, or a call of
// Reconfigure, replaces the properties.
func (c *Cluster) ReconfigureDataNode(ctx context.Context, i int, settings map[string]string) error {
	now := properties{}
	maps.Copy(now, c.reconfigured)
	maps.Copy(now, settings)
	if err := c.ConfigureDataNode(i, now); err != nil {
		return err
	}
	return c.reconfigure(ctx, i, slices.Sorted(maps.Keys(settings)))
}

// DataDirs returns DataNode i's dfs.datanode.data.dir with further volumes.
func (c *Cluster) DataDirs(i int, more ...Volume) string {
	return dataDirs(slices.Concat(c.cfg.DataNodes[i].Volumes, more))
}

func dataDirs(volumes []Volume) string {
	var dirs []string
	for _, v := range volumes {
		dirs = append(dirs, "["+cmp.Or(v.Type, "DISK")+"]file://"+v.Dir)
	}
	return strings.Join(dirs, ",")
}

func (c *Cluster) reconfigure(ctx context.Context, i int, changed []string) error {
	if _, err := c.reconfigCommand(ctx, i, "start"); err != nil {
		return err
	}
	err := poll.Until(ctx, 200*time.Millisecond, func() (bool, error) {
		out, err := c.reconfigCommand(ctx, i, "status")
		if err != nil {
			return false, err
		}
		return parseReconfigStatus(out, changed)
	})
	if err != nil {
		err = fmt.Errorf("reconfigure DataNode %d of Hadoop %s: %w", i, c.Version(), err)
	}
	return err
}

// reconfigCommand runs dfsadmin to its end and returns its output.
func (c *Cluster) reconfigCommand(ctx context.Context, i int, operation string) (string, error) {
	name := fmt.Sprintf("reconfig-%d-dn%d-%s", c.runs.Add(1), i, operation)
	address := c.cfg.at(c.ports.dn[i].ipc)
	log, err := c.tool(ctx, name, 128, "org.apache.hadoop.hdfs.tools.DFSAdmin", "-reconfig", "datanode", address, operation)
	if err != nil {
		return "", err
	}
	out, err := os.ReadFile(log)
	return string(out), err
}

// parseReconfigStatus parses the output of `dfsadmin -reconfig datanode ADDRESS status`. It reports
// whether the DataNode's reconfiguration has ended, and returns an error if the reconfiguration has
// ended without changing all properties.
func parseReconfigStatus(out string, changed []string) (done bool, err error) {
	if !strings.Contains(out, " and finished at ") {
		if strings.Contains(out, "no task was found") {
			return false, errors.New("no reconfiguration has begun")
		}
		return false, nil
	}
	for _, name := range changed {
		if !strings.Contains(out, "SUCCESS: Changed property "+name+"\n") {
			return true, fmt.Errorf("%s was not changed in the running DataNode (Hadoop 3.4 and 3.5 can do it); its status:\n%s", name, strings.TrimSpace(out))
		}
	}
	return true, nil
}
