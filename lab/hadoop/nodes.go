package hadoop

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// loopback is the address of servers that share the caller's network namespace.
const loopback = "127.0.0.1"

// Machine is a place with an address of its own, where processes run.
type Machine interface {
	IP() string                   // IPv4 address
	HostName() string             // "": that of the caller's machine
	Args(argv ...string) []string // the command line that runs argv there, as one process
}

// Node is a machine with an address of its own for a DataNode and a NodeManager.
type Node struct {
	Machine   Machine
	LocalDirs []string // intermediate data of its NodeManager, of no other one; default: in the run folder
	Cgroup    string   // folder of the cgroup of its two JVMs and of its containers; "": the caller's
	CPUs      string   // taskset list of its NodeManager and of its containers; "": all
}

// validateNodes completes a configuration with nodes: there is one DataNode and one NodeManager for each.
func (cfg *Config) validateNodes() error {
	if len(cfg.Nodes) == 0 {
		if cfg.Masters != nil {
			return errors.New("hadoop: Masters without Nodes: give each DataNode and NodeManager a machine too")
		}
		return nil
	}
	if cfg.Masters == nil || cfg.NoYARN || cfg.ZooKeeper != "" {
		return errors.New("hadoop: Nodes need Masters and one ResourceManager")
	}
	if len(cfg.DataNodes) == 0 && !cfg.NoHDFS {
		cfg.DataNodes = make([]DataNode, len(cfg.Nodes))
	}
	if !cfg.NoHDFS && len(cfg.DataNodes) != len(cfg.Nodes) || cfg.NodeManagers != 0 && cfg.NodeManagers != len(cfg.Nodes) {
		return fmt.Errorf("hadoop: %d DataNodes and %d NodeManagers for %d nodes: give one of each for each node", len(cfg.DataNodes), cfg.NodeManagers, len(cfg.Nodes))
	}
	cfg.NodeManagers = len(cfg.Nodes)
	for i, n := range cfg.Nodes {
		if n.Machine == nil {
			return fmt.Errorf("hadoop: node %d has no machine", i)
		}
		if n.Cgroup != "" && !cfg.NoHDFS && cfg.DataNodes[i].CPUs != "" {
			return fmt.Errorf("hadoop: node %d has a cgroup and CPUs: choose one", i)
		}
	}
	if cfg.Host == "" {
		cfg.Host = cfg.Masters.IP()
	}
	return nil
}

// hostsFile returns the path of the file from which all JVMs of a cluster with nodes take names.
func (c *Cluster) hostsFile() string { return filepath.Join(c.cfg.RunDir, "conf", "hosts") }

// hosts returns the content of the hosts file: each address is its own name. Without the file, a JVM asks the machine's name
// server for the name of each peer. From a namespace it does not reach the server, and waits 5 s for each answer.
func (cfg *Config) hosts() (string, error) {
	own, err := os.Hostname()
	if err != nil {
		return "", err
	}
	text := loopback + " localhost " + own + "\n"
	for _, n := range append(slices.Clone(cfg.Nodes), Node{Machine: cfg.Masters}) {
		text += strings.TrimSpace(fmt.Sprintf("%s %[1]s %s", n.Machine.IP(), n.Machine.HostName())) + "\n"
	}
	return text, nil
}

// node returns the node of DataNode i and NodeManager i; without nodes, a node without a machine.
func (cfg *Config) node(i int) Node {
	if len(cfg.Nodes) == 0 {
		return Node{}
	}
	return cfg.Nodes[i]
}

// dataNodeAt returns an address of DataNode i for HDFS.
func (cfg *Config) dataNodeAt(i, port int) string {
	if len(cfg.Nodes) == 0 {
		return cfg.at(port)
	}
	return cfg.nodeAt(i, port)
}

// nodeAt returns an address of node i or, without nodes, of loopback.
func (cfg *Config) nodeAt(i, port int) string {
	host := loopback
	if len(cfg.Nodes) > 0 {
		host = cfg.Nodes[i].Machine.IP()
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// resourceManagerHost returns the host of the ResourceManagers.
func (cfg *Config) resourceManagerHost() string {
	if cfg.Kerberos != nil {
		return "localhost" // Kerberos knows services by the names of their hosts
	}
	if len(cfg.Nodes) > 0 {
		return cfg.Host
	}
	return loopback
}

// nodeSettings returns the settings of all servers of a cluster with nodes.
func (cfg *Config) nodeSettings() properties {
	if len(cfg.Nodes) == 0 {
		return nil
	}
	return properties{
		// A task writes the first replica on its own node, as on a real cluster.
		"dfs.namenode.block-placement-policy.default.prefer-local-node": "true",
		"yarn.nodemanager.resource.memory-mb":                           strconv.Itoa(containerMB * (1 + cfg.TaskSlots)),
		// One container for each heartbeat, so that a job's tasks are spread over the nodes.
		"yarn.scheduler.capacity.per-node-heartbeat.multiple-assignments-enabled": "false",
	}
}

// nodeName returns the property of a server's host name, with nodes.
func (cfg *Config) nodeName(property string, i int) properties {
	if len(cfg.Nodes) == 0 {
		return nil
	}
	return properties{property: cfg.Nodes[i].Machine.IP()}
}

// localDirs returns the folders of NodeManager i for intermediate data.
func (cfg *Config) localDirs(i int) string {
	all := cfg.LocalDirs
	if own := cfg.node(i).LocalDirs; len(own) > 0 {
		return strings.Join(own, ",")
	}
	var dirs []string
	for _, d := range all {
		dirs = append(dirs, filepath.Join(d, nodeManagerName(i)))
	}
	return strings.Join(dirs, ",")
}

// on returns the command line that runs argv on the JVM's machine or, without one, on the masters' machine.
func (c *Cluster) on(machine Machine, argv []string) []string {
	if machine == nil {
		machine = c.cfg.Masters
	}
	if machine == nil {
		return argv
	}
	return machine.Args(argv...)
}

// ShuffleAddress returns the address at which NodeManager i serves the outputs of maps.
func (c *Cluster) ShuffleAddress(i int) string { return c.cfg.nodeAt(i, c.ports.nm[i].shuffle) }
