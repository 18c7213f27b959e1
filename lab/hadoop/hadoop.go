// Package hadoop runs a real, unmodified Hadoop on this machine: a NameNode, DataNodes, one
// ResourceManager or two, and NodeManagers, each in its own JVM.
//
// On one machine, the package reproduces the rack of IBIS's authors (IBIS, section 7.1: separate
// disks for HDFS and intermediate data, half of the cores for the protected job and half for its
// aggressor). Each DataNode has its own volumes, of the type [DISK] or [SSD], so a storage policy
// can decide where a job's data is stored. Each job's JVMs can be bound to CPUs. Two queues of
// equal size separate the containers of the two jobs.
//
// All files are in one private run folder, except the directories that Config places elsewhere. All
// servers listen on 127.0.0.1, except that Config.Host can give HDFS another address, and that
// Config.Nodes can give each node a network namespace and an address of its own. The daemons die
// with their parent (PR_SET_PDEATHSIG). The NodeManager is the first process of a PID namespace, so
// its containers die with it. Each process is recorded in the run folder's ledger, so ledger.Recover
// can end processes after a crash.
//
// Operations on metadata use WebHDFS and the ResourceManager's REST interface, because a Hadoop
// shell command starts a JVM, which takes seconds on a small machine.
package hadoop

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"penstock/lab/ledger"
	"penstock/lab/process"
)

// The queues of a cluster without Config.Queues. Each has half of the containers, and never uses
// more.
const (
	QueueProtected = "protected"
	QueueAggressor = "aggressor"
)

// SmallDisks are settings for disks of a few GiB. By default a volume accepts no block if it has
// less than 1 GiB left.
var SmallDisks = map[string]string{"dfs.datanode.round-robin-volume-choosing-policy.additional-available-space": "0"}

// Volume is a storage directory of a DataNode.
type Volume struct {
	Dir  string // absolute; created when missing
	Type string // DISK (the default) or SSD, by which a storage policy chooses volumes
}

// DataNode configures one DataNode.
type DataNode struct {
	Volumes []Volume // default: one DISK volume in the run folder
	HeapMB  int      // default 256
	JVMArgs []string // JVM arguments, such as -javaagent:..., as in HDFS_DATANODE_OPTS
	CPUs    string   // taskset list of the JVM's CPUs; empty: all
	Wrapper []string // command before the JVM's command, such as unshare; it must exec its last arguments; default: none
	Socket  string   // socket of this DataNode's own daemon, as on a machine of its own; default: Governed.Socket
}

// Governed contains the absolute paths of Penstock's files for a cluster's processes.
type Governed struct {
	AgentJar string
	Socket   string // of the node's daemon, which may stop and restart
}

// Config describes a cluster. The zero value of a field is its default.
type Config struct {
	RunDir  string // private, created when missing; its conf, data, java, logs and tmp are replaced
	Version string // one of Versions; default DefaultVersion
	Lib     string // folder of that version's jars, from Fetch
	// Java is the home of the Java runtime, with bin/java, of all JVMs of the cluster: servers, clients and
	// containers. Default: JAVA_HOME or, if that is not set, the java on the PATH.
	Java string

	// Host is the IP address of this machine on which HDFS listens; default 127.0.0.1, which only
	// clients on this machine can reach. YARN always listens on 127.0.0.1, except with Nodes.
	Host string

	// Nodes, if there are any, are machines with addresses of their own: DataNode i and NodeManager i run on
	// Nodes[i], with their containers. All other JVMs, also those of clients, run on Masters, whose address is the
	// default Host. The caller's namespace must reach all of them. The nodes need root.
	Nodes   []Node
	Masters Machine

	DataNodes    []DataNode // default: one
	NodeManagers int        // default 1
	NoYARN       bool       // HDFS only: no ResourceManager, no NodeManager, no jobs
	NoHDFS       bool       // YARN only, with Nodes: no NameNode, no DataNode; Settings must contain fs.defaultFS
	Jars         []string   // jars on the class path of all JVMs, in addition to Hadoop's
	// ZooKeeper is the host:port of a ZooKeeper. With it there are two ResourceManagers, an HA
	// pair. They use ZooKeeper to elect the active one and to store the applications. Without it
	// there is one ResourceManager, which stores nothing.
	ZooKeeper string
	LocalDirs []string // intermediate data (spills, shuffle); default in the run folder

	Replication int   // default 1
	BlockSize   int64 // bytes, default 16 MiB (128 MiB scaled as the modelled disks are); rounded up to a multiple of 512
	TaskSlots   int   // running tasks per queue (with Nodes: per node), in addition to an ApplicationMaster; default 2
	TaskHeapMB  int   // heap of a map or reduce JVM; default 400

	// Queues are the paths of the scheduler's leaf queues, such as root.etl.night. Default:
	// QueueProtected and QueueAggressor, each with half of the tasks.
	Queues        []string
	DiskBandwidth int // MB/s that a NodeManager offers as BandwidthResource; 0: no such resource

	// Governed prepares the configuration as `penstock install` does, and gives DataNodes and
	// NodeManagers the agent; nil: the cluster runs without Penstock, except for JVMArgs.
	Governed *Governed

	Kerberos *Kerberos // nil: the cluster believes the names of its users

	// Settings override any generated property of any *-site.xml.
	Settings map[string]string
	// Progress receives one line per step; nil: silent.
	Progress func(format string, args ...any)
}

// Cluster is a running Hadoop. Its methods may be called from any goroutine.
type Cluster struct {
	cfg      Config
	ports    ports
	book     *ledger.Ledger
	managers *http.Client // for requests to secured ResourceManagers; otherwise nil
	runs     atomic.Int64 // counts clients and tools; it is part of the names of their logs

	mu     sync.Mutex
	nn     *process.Process
	rms    []*process.Process
	nms    []*process.Process
	dns    []*process.Process
	apps   []*App
	active int // index of the active ResourceManager, as of the last query
	// reconfigured are the DataNodes' properties that Reconfigure has set.
	reconfigured properties
	logf         func(format string, args ...any)

	stopOnce sync.Once
	stopErr  error
}

// at returns the HDFS address with the given port.
func (cfg *Config) at(port int) string { return net.JoinHostPort(cfg.Host, strconv.Itoa(port)) }

func (cfg *Config) validate() error {
	if cfg.RunDir == "" || !filepath.IsAbs(cfg.RunDir) {
		return fmt.Errorf("hadoop: RunDir %q must be an absolute path", cfg.RunDir)
	}
	cfg.Version = cmp.Or(cfg.Version, DefaultVersion)
	if err := CheckVersion(cfg.Version); err != nil {
		return err
	}
	if cfg.Java != "" {
		if _, err := findJava(cfg.Java, cfg.Version); err != nil {
			return err
		}
	}
	if err := cfg.validateQueues(); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(cfg.Lib, "hadoop-common-"+cfg.Version+".jar")); err != nil {
		return fmt.Errorf("hadoop: no Hadoop %s in Lib %q (call Fetch first): %w", cfg.Version, cfg.Lib, err)
	}
	if cfg.Kerberos != nil {
		if err := cfg.Kerberos.validate(); err != nil {
			return err
		}
	}
	if err := cfg.validateNodes(); err != nil {
		return err
	}
	cfg.Host = cmp.Or(cfg.Host, loopback)
	if len(cfg.DataNodes) == 0 && !cfg.NoHDFS {
		cfg.DataNodes = make([]DataNode, 1)
	}
	cfg.DataNodes = slices.Clone(cfg.DataNodes)
	for i := range cfg.DataNodes {
		dn := &cfg.DataNodes[i]
		dn.HeapMB = cmp.Or(dn.HeapMB, 256)
		dn.Volumes = slices.Clone(dn.Volumes)
		if len(dn.Volumes) == 0 {
			dn.Volumes = []Volume{{Dir: filepath.Join(cfg.RunDir, "data", fmt.Sprintf("dn%d", i))}}
		}
		for j := range dn.Volumes {
			v := &dn.Volumes[j]
			if v.Type = cmp.Or(v.Type, "DISK"); v.Type != "DISK" && v.Type != "SSD" {
				return fmt.Errorf("hadoop: DataNode %d: volume type %q is neither DISK nor SSD", i, v.Type)
			}
			if !filepath.IsAbs(v.Dir) {
				return fmt.Errorf("hadoop: DataNode %d: volume %q must be an absolute path", i, v.Dir)
			}
		}
	}
	if cfg.NoYARN {
		cfg.NodeManagers = 0
	} else {
		cfg.NodeManagers = cmp.Or(cfg.NodeManagers, 1)
	}
	if len(cfg.LocalDirs) == 0 {
		cfg.LocalDirs = []string{filepath.Join(cfg.RunDir, "data", "local")}
	}
	cfg.Replication = cmp.Or(cfg.Replication, 1)
	if cfg.Replication > len(cfg.DataNodes) && !cfg.NoHDFS {
		return fmt.Errorf("hadoop: replication %d needs at least that many DataNodes, and there are %d", cfg.Replication, len(cfg.DataNodes))
	}
	cfg.BlockSize = (cmp.Or(cfg.BlockSize, 16<<20) + 511) / 512 * 512
	cfg.TaskSlots, cfg.TaskHeapMB = cmp.Or(cfg.TaskSlots, 2), cmp.Or(cfg.TaskHeapMB, 400)
	if cfg.NodeManagers < 0 || cfg.Replication < 0 || cfg.BlockSize < 1<<20 || cfg.TaskSlots < 1 || cfg.TaskHeapMB < 64 {
		return fmt.Errorf("hadoop: out of range: NodeManagers %d, Replication %d, BlockSize %d (at least 1 MiB), TaskSlots %d, TaskHeapMB %d (at least 64)",
			cfg.NodeManagers, cfg.Replication, cfg.BlockSize, cfg.TaskSlots, cfg.TaskHeapMB)
	}
	return nil
}

// RunDir returns the cluster's private folder.
func (c *Cluster) RunDir() string { return c.cfg.RunDir }

// Version returns the cluster's Hadoop release.
func (c *Cluster) Version() string { return c.cfg.Version }

// BlockSize returns the default block size in bytes.
func (c *Cluster) BlockSize() int64 { return c.cfg.BlockSize }

// NameNodeURL returns the base of the NameNode's web address.
func (c *Cluster) NameNodeURL() string { return "http://" + c.cfg.at(c.ports.nnHTTP) }

// DefaultFS returns the file system's URI (fs.defaultFS).
func (c *Cluster) DefaultFS() string { return "hdfs://" + c.cfg.at(c.ports.nnRPC) }

// ClientConfDir returns the configuration folder for clients. Clients need it and the jars on their
// class path.
func (c *Cluster) ClientConfDir() string { return c.confDir("client") }

// FS returns access to the cluster's file system.
func (c *Cluster) FS() *FS { return &FS{c: c} }

// DataNodePID returns the process id of DataNode i, or 0 while it is stopped.
func (c *Cluster) DataNodePID(i int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return pid(c.dns, i)
}

// NodeManagerPID returns the process id of NodeManager i. If root runs the cluster, the NodeManager
// is the first process of its containers' PID namespace, so that orphaned processes become its
// children.
func (c *Cluster) NodeManagerPID(i int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return pid(c.nms, i)
}

func pid(of []*process.Process, i int) int {
	if i < 0 || i >= len(of) || !of[i].Alive() {
		return 0
	}
	return of[i].PID()
}

// DataNodeAddress returns the address at which DataNode i transfers data, such as "127.0.0.1:port".
// Block locations contain the same address.
func (c *Cluster) DataNodeAddress(i int) string {
	return c.cfg.dataNodeAt(i, c.ports.dn[i].data)
}

// DataNodeURL returns the base of DataNode i's web address.
func (c *Cluster) DataNodeURL(i int) string {
	return "http://" + c.cfg.nodeAt(i, c.ports.dn[i].http)
}

// NodeManagerURL returns the base of NodeManager i's web address.
func (c *Cluster) NodeManagerURL(i int) string {
	return "http://" + c.cfg.nodeAt(i, c.ports.nm[i].http)
}

// LogDir returns the folder with one log per daemon (nn.log, dn0.log, ...), the clients' output
// (job-N.log) and the containers' folders.
func (c *Cluster) LogDir() string { return filepath.Join(c.cfg.RunDir, "logs") }

// HistoryDir returns the HDFS folder with the history of ended MapReduce jobs.
func (c *Cluster) HistoryDir() string { return path.Join(historyDir, user()) }
