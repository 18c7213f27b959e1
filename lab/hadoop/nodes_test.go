package hadoop

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"penstock/lab/netns"
)

func machine(name, address string) *netns.Machine {
	return &netns.Machine{Name: name, Address: netip.MustParseAddr(address)}
}

func nodes() Config {
	return Config{Masters: machine("router", "198.18.0.254"), Replication: 2, TaskSlots: 3, Nodes: []Node{
		{Machine: machine("one", "198.18.0.1"), LocalDirs: []string{"/disk0/local"}, Cgroup: "/cgroup/nodes"},
		{Machine: machine("two", "198.18.0.2")},
	}}
}

// Each node has its own address, and no server of the cluster listens on or names 127.0.0.1.
func TestNodesHaveTheirOwnAddresses(t *testing.T) {
	c := testCluster(t, nodes())
	if len(c.cfg.DataNodes) != 2 || c.cfg.NodeManagers != 2 {
		t.Fatalf("%d DataNodes, %d NodeManagers", len(c.cfg.DataNodes), c.cfg.NodeManagers)
	}
	site := c.site()
	for key, want := range map[string]string{
		"yarn.resourcemanager.hostname":                                           "198.18.0.254",
		"yarn.nodemanager.resource.memory-mb":                                     "2048", // three tasks and an ApplicationMaster
		"dfs.namenode.block-placement-policy.default.prefer-local-node":           "true",
		"yarn.scheduler.capacity.per-node-heartbeat.multiple-assignments-enabled": "false",
	} {
		if site[key] != want {
			t.Errorf("%s = %q, want %q", key, site[key], want)
		}
	}
	for _, url := range []string{c.NameNodeURL(), c.DefaultFS(), c.ResourceManagerURL()} {
		if !strings.Contains(url, "//198.18.0.254:") {
			t.Errorf("a master is at %s", url)
		}
	}
	hosts, err := c.cfg.hosts()
	if err != nil || !strings.HasPrefix(hosts, "127.0.0.1 localhost ") || !strings.HasSuffix(hosts, "\n198.18.0.1 198.18.0.1\n198.18.0.2 198.18.0.2\n198.18.0.254 198.18.0.254\n") {
		t.Errorf("names:\n%s%v", hosts, err)
	}
	for what, options := range map[string]string{"servers": strings.Join(c.jvmOpts(1), " "), "tasks": c.taskOpts(1)} {
		if !strings.Contains(options, "-Djdk.net.hosts.file="+c.hostsFile()) {
			t.Errorf("%s take names from elsewhere: %s", what, options)
		}
	}
	for i, address := range []string{"198.18.0.1", "198.18.0.2"} {
		all := properties{}
		for _, own := range []properties{site, c.dataNodeSite(i), c.nodeManagerSite(i)} {
			for k, v := range own {
				all[k] = v
			}
		}
		for _, key := range []string{"dfs.datanode.hostname", "yarn.nodemanager.hostname"} {
			if all[key] != address {
				t.Errorf("node %d: %s = %q", i, key, all[key])
			}
		}
		for _, key := range []string{"dfs.datanode.address", "dfs.datanode.ipc.address", "dfs.datanode.http.address", "yarn.nodemanager.address",
			"yarn.nodemanager.localizer.address", "yarn.nodemanager.webapp.address"} {
			if !strings.HasPrefix(all[key], address+":") {
				t.Errorf("node %d: %s = %q", i, key, all[key])
			}
		}
		for k, v := range all {
			if strings.Contains(v, loopback) {
				t.Errorf("node %d: %s = %s", i, k, v)
			}
		}
		if !strings.HasPrefix(c.DataNodeAddress(i), address+":") || !strings.HasPrefix(c.ShuffleAddress(i), address+":") ||
			!strings.HasPrefix(c.DataNodeURL(i), "http://"+address) || !strings.HasPrefix(c.NodeManagerURL(i), "http://"+address) {
			t.Errorf("node %d: %s %s %s %s", i, c.DataNodeAddress(i), c.ShuffleAddress(i), c.DataNodeURL(i), c.NodeManagerURL(i))
		}
	}
	if got := c.nodeManagerSite(0)["yarn.nodemanager.local-dirs"]; got != "/disk0/local" {
		t.Errorf("local folders of the first node: %s", got)
	}
	if got := c.nodeManagerSite(1)["yarn.nodemanager.local-dirs"]; !strings.HasSuffix(got, "/data/local/nm1") {
		t.Errorf("local folders of the second node: %s", got)
	}
}

// A node's JVMs run on its machine, all others on the masters'. Without nodes, nothing enters a namespace.
func TestJVMsRunOnTheirMachines(t *testing.T) {
	c := testCluster(t, nodes())
	for _, x := range []struct {
		on   Machine
		want string
	}{{c.cfg.Nodes[1].Machine, "two"}, {nil, "router"}} {
		if got := c.on(x.on, []string{"java", "-version"}); !slices.Equal(got, []string{"nsenter", "--net=/run/netns/" + x.want, "--", "java", "-version"}) {
			t.Errorf("%q", got)
		}
	}
	alone := testCluster(t, Config{})
	if got := alone.on(nil, []string{"java"}); !slices.Equal(got, []string{"java"}) {
		t.Errorf("%q", got)
	}
}

// Without nodes, the configuration is as before: everything is on 127.0.0.1.
func TestWithoutNodesAllIsOnLoopback(t *testing.T) {
	c := testCluster(t, Config{DataNodes: make([]DataNode, 2), NodeManagers: 2})
	site := c.site()
	if site["yarn.resourcemanager.hostname"] != loopback || site["dfs.datanode.hostname"] != loopback || site["yarn.nodemanager.hostname"] != loopback ||
		site["dfs.namenode.block-placement-policy.default.prefer-local-node"] != "false" {
		t.Errorf("%v", site)
	}
	for _, own := range []properties{c.dataNodeSite(1), c.nodeManagerSite(1)} {
		for _, key := range []string{"dfs.datanode.hostname", "yarn.nodemanager.hostname"} {
			if v, ok := own[key]; ok {
				t.Errorf("%s = %s is a daemon's own property", key, v)
			}
		}
	}
	if options := c.taskOpts(1); strings.Contains(options, "hosts") {
		t.Errorf("tasks take names from a file: %s", options)
	}
	if !strings.HasPrefix(c.DataNodeAddress(1), loopback) || !strings.HasPrefix(c.ResourceManagerURL(), "http://"+loopback) {
		t.Errorf("%s, %s", c.DataNodeAddress(1), c.ResourceManagerURL())
	}
}

func TestNodesAreValidated(t *testing.T) {
	lib := testCluster(t, Config{}).cfg.Lib
	for what, change := range map[string]func(*Config){
		"Masters without": func(c *Config) { c.Nodes = nil },
		"need Masters":    func(c *Config) { c.Masters = nil },
		"one Resource":    func(c *Config) { c.ZooKeeper = "127.0.0.1:1" },
		"3 DataNodes":     func(c *Config) { c.DataNodes = make([]DataNode, 3) },
		"1 NodeManagers":  func(c *Config) { c.NodeManagers = 1 },
		"no machine":      func(c *Config) { c.Nodes = slices.Clone(c.Nodes); c.Nodes[1].Machine = nil },
		"choose one":      func(c *Config) { c.DataNodes = []DataNode{{CPUs: "0"}, {}} },
	} {
		cfg := nodes()
		cfg.RunDir, cfg.Lib = "/r", lib
		change(&cfg)
		if err := cfg.validate(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
