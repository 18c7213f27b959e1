package hadoop

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// BandwidthResource is the resource type with which jobs request MB/s, on a cluster that offers it
// (Config.DiskBandwidth).
const BandwidthResource = "disk-bandwidth"

// queueSettings returns the scheduler's settings for Config.Queues and DiskBandwidth. Sibling
// queues have equal parts of the capacity, and each may use all of it.
func (cfg *Config) queueSettings() properties {
	const scheduler = "yarn.scheduler.capacity."
	settings := properties{}
	if cfg.DiskBandwidth > 0 {
		settings["yarn.resource-types"] = BandwidthResource
		settings["yarn.resource-types."+BandwidthResource+".units"] = "M"
		settings["yarn.nodemanager.resource-type."+BandwidthResource] = strconv.Itoa(cfg.DiskBandwidth) + "M"
		// The default calculator counts only memory.
		settings[scheduler+"resource-calculator"] = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
	}
	children := map[string][]string{}
	for _, path := range cfg.Queues {
		for at := path; at != "root"; {
			cut := strings.LastIndexByte(at, '.')
			above, name := at[:cut], at[cut+1:]
			if !slices.Contains(children[above], name) {
				children[above] = append(children[above], name)
				settings[scheduler+at+".capacity"] = "1w"
				settings[scheduler+at+".maximum-capacity"] = "100"
				settings[scheduler+at+".user-limit-factor"] = "-1"
				settings[scheduler+at+".state"] = "RUNNING"
			}
			at = above
		}
	}
	for path, names := range children {
		settings[scheduler+path+".queues"] = strings.Join(names, ",")
	}
	return settings
}

// checkQueue returns an error for a queue that the cluster does not have.
func (cfg *Config) checkQueue(queue string) error {
	if len(cfg.Queues) == 0 && (queue == QueueProtected || queue == QueueAggressor) || slices.Contains(cfg.Queues, queue) {
		return nil
	}
	return fmt.Errorf("hadoop: this cluster has no queue %q", queue)
}

// validateQueues returns an error unless the queues are complete paths of leaves.
func (cfg *Config) validateQueues() error {
	for i, path := range cfg.Queues {
		levels := strings.Split(path, ".")
		if levels[0] != "root" || len(levels) < 2 || slices.Contains(levels, "") {
			return fmt.Errorf("hadoop: queue %q: give the whole path, such as root.etl", path)
		}
		for j, other := range cfg.Queues {
			if i != j && (other == path || strings.HasPrefix(other, path+".")) {
				return fmt.Errorf("hadoop: queue %q is not a leaf, or is listed twice", path)
			}
		}
	}
	if cfg.DiskBandwidth < 0 {
		return fmt.Errorf("hadoop: disk bandwidth of %d MB/s is negative", cfg.DiskBandwidth)
	}
	return nil
}
