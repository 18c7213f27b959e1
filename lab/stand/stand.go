// Package stand sets up the machine of an experiment or a test: modelled disks, node daemons, a
// broker, ZooKeeper, real Hadoop, HDFS clients and network namespaces.
//
// A Spec lists the parts. Up starts them in the order of their dependencies and waits until
// everything is connected. Down stops them in the reverse order. Each change of the machine is
// recorded in the run folder's ledger before it is made, so the next run can undo it after a crash
// (ledger.Recover). Some parts depend on others: a DataNode's folder is on a disk, and a daemon's
// settings name a device. The Spec describes such parts by functions of the Stand, and Up calls
// such a function when the parts that the function needs exist.
//
//	s, err := stand.Up(ctx, stand.Spec{
//		Name:  "shares",
//		Disks: []disk.Options{{Name: "disk", Size: 6 << 30}},
//		Nodes: func(*stand.Stand) []daemon.Options { return []daemon.Options{{Mode: "enforce"}} },
//		Hadoop: func(s *stand.Stand) hadoop.Config {
//			return hadoop.Config{DataNodes: s.DataNodes("dfs"), Governed: s.Governed(0)}
//		},
//	})
//	...
//	err = s.Down()
package stand

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"penstock/lab/client"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
	"penstock/lab/netns"
	"penstock/lab/ports"
	"penstock/lab/zookeeper"
)

const (
	// Patience bounds each wait for an event. Even a busy machine needs only a fraction of it.
	Patience = 2 * time.Minute
	// tunePatience bounds the wait for another run that has changed the same kernel parameter. Two
	// experiments at the same time would disturb each other's measurements.
	tunePatience = 30 * time.Minute
	// socketPathMax is the longest path of a Unix socket in bytes: sun_path without the final zero
	// byte.
	socketPathMax = 107
)

// Spec describes the parts of a stand. The zero value of a field is its default.
type Spec struct {
	// Name is the beginning of the run folder's name. The folder is in the system's temporary
	// folder.
	Name string
	// Dir is the absolute path of the run folder; default: a new folder. The path must be short,
	// because the folder contains Unix sockets.
	Dir string
	// Binary is the path of penstock, AgentJar the path of penstock-agent.jar, and Cache the folder
	// for downloads. The paths are absolute. Default: the files of the checkout that contains the
	// working directory.
	Binary, AgentJar, Cache string
	// Public gives other users access to the run folder.
	Public bool

	// Sysctls are kernel parameters to set, in this order, such as vm/dirty_bytes. Without root
	// they are not changed.
	Sysctls []Sysctl
	// Machines is the number of network namespaces. All are on one network.
	Machines int
	// ZooKeeper adds one ZooKeeper server.
	ZooKeeper bool
	// Disks are the modelled disks. Up fills in their RunDir.
	Disks []disk.Options
	// DisksOptional uses plain folders instead of modelled disks on machines that cannot have
	// modelled disks.
	DisksOptional bool

	// Prepare is called after the start of network, ZooKeeper and disks.
	Prepare func(context.Context, *Stand) error
	// Broker returns the broker's arguments besides --listen; nil: no broker. The broker starts
	// after Hadoop, with the policy in PolicyFile.
	Broker func(*Stand) []string
	// Nodes returns the daemons' options. Up sets Book, and sets Binary, Base, Socket and Patience if
	// they are empty.
	Nodes func(*Stand) []daemon.Options
	// With NodesLater, Up does not start the daemons; the caller starts them with StartNode.
	NodesLater bool
	// Hadoop returns the cluster's configuration; nil: no cluster. Up sets RunDir and Progress, and
	// sets Lib if it is empty.
	Hadoop func(*Stand) hadoop.Config
	// Clients starts a JVM of HDFS clients (package client). ClientClasses only compiles the
	// clients.
	Clients, ClientClasses bool
	// Agents contains, for each daemon, the number of connected agents that Up waits for; 0: Up does
	// not wait.
	Agents []int

	// Stop, if not nil, stops what Prepare has started. It is called even if Prepare failed.
	Stop func() error

	// Progress receives one line per step; nil: no output.
	Progress func(format string, args ...any)
}

// Sysctl is a kernel parameter. Name is its path below /proc/sys.
type Sysctl struct{ Name, Value string }

// LateWriteback keeps the kernel from writing dirty pages by itself. The amount and the time of
// such writes would depend on the machine.
var LateWriteback = []Sysctl{
	{"vm/dirty_bytes", "2147483648"}, {"vm/dirty_background_bytes", "1073741824"}, {"vm/dirty_expire_centisecs", "3000"},
}

// DirtyBytes returns the kernel's bounds of dirty memory, in bytes: the amount at which the kernel begins to write, and the amount
// at which writers wait.
func DirtyBytes(background, most int64) []Sysctl {
	return []Sysctl{{"vm/dirty_background_bytes", strconv.FormatInt(background, 10)}, {"vm/dirty_bytes", strconv.FormatInt(most, 10)}}
}

// Stand is a running machine. Fields of parts that are not in the Spec are zero. Only one goroutine
// at a time may call its methods, unless a method says otherwise.
type Stand struct {
	Spec    Spec
	Dir     string
	Book    *ledger.Ledger
	Lib     string // folder of Hadoop's jars
	Classes string // folder of the compiled clients

	Network   *netns.Network
	ZooKeeper *zookeeper.Server
	Disks     []*disk.Disk
	Broker    *daemon.Daemon
	Nodes     []*daemon.Daemon
	Hadoop    *hadoop.Cluster
	Clients   *client.JVM

	clusters      []*hadoop.Cluster // further clusters, besides Hadoop
	brokerAddress string
	nodes         []daemon.Options // options of each node's last start
	starts        []int            // number of starts of each node
	down          sync.Once
	downErr       error
}

// Up starts a stand. If it fails or ctx ends, it undoes everything.
func Up(ctx context.Context, spec Spec) (*Stand, error) {
	s := &Stand{Spec: spec}
	if err := s.up(ctx); err != nil {
		return nil, errors.Join(err, s.Down())
	}
	return s, nil
}

func (s *Stand) up(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		s.prepareFolder, s.tune, s.startNetwork, s.startZooKeeper, s.startDisks, s.prepare,
		s.chooseBrokerAddress, s.startNodes, s.startHadoop, s.startBroker, s.startClients,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	for i, n := range s.Spec.Agents {
		if err := s.AwaitAgents(ctx, i, n); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stand) say(format string, args ...any) {
	if s.Spec.Progress != nil {
		s.Spec.Progress(format, args...)
	}
}

func (s *Stand) prepareFolder(context.Context) (err error) {
	spec := &s.Spec
	if len(spec.Disks) > 0 && !spec.DisksOptional {
		if err := disk.Available(); err != nil {
			return fmt.Errorf("modelled disks are needed and not available here: %w", err)
		}
	}
	if s.Dir = spec.Dir; s.Dir == "" {
		// The system's temporary folder has a short path, which Unix sockets need.
		if s.Dir, err = os.MkdirTemp("", "penstock-"+spec.Name+"-"); err != nil {
			return err
		}
	}
	if spec.Public {
		if err := os.Chmod(s.Dir, 0o755); err != nil {
			return err
		}
	}
	if n := len(s.Socket(0)); n > socketPathMax {
		return fmt.Errorf("run folder %s: the path of the agents' socket in it would have %d bytes, and the kernel allows %d: choose a folder with a shorter path",
			s.Dir, n, socketPathMax)
	}
	if spec.Binary == "" || spec.AgentJar == "" || spec.Cache == "" {
		root, err := checkout()
		if err != nil {
			return err
		}
		spec.Binary = cmp.Or(spec.Binary, filepath.Join(root, "bin", "penstock"))
		spec.AgentJar = cmp.Or(spec.AgentJar, filepath.Join(root, "bin", "penstock-agent.jar"))
		spec.Cache = cmp.Or(spec.Cache, filepath.Join(root, ".cache"))
	}
	for _, file := range []string{spec.Binary, spec.AgentJar} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("run make build first: %w", err)
		}
	}
	s.Book, err = ledger.Open(s.Dir)
	return err
}

// checkout returns the folder that contains go.mod: the working directory or a folder above it.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in a checkout of penstock", start)
		}
	}
}

func (s *Stand) tune(ctx context.Context) error { return s.SetSysctls(ctx, s.Spec.Sysctls...) }

// SetSysctls sets kernel parameters until Down. It waits while another run has changed one of them.
// Without root it does nothing.
func (s *Stand) SetSysctls(ctx context.Context, parameters ...Sysctl) error {
	if os.Geteuid() != 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tunePatience)
	defer cancel()
	waiting := time.AfterFunc(time.Second, func() {
		s.say("another run has changed the same kernel parameters: waiting for it to end, at most %v", tunePatience)
	})
	defer waiting.Stop()
	for _, p := range parameters {
		if _, err := ledger.SetSysctl(ctx, s.Book, p.Name, p.Value); err != nil {
			return fmt.Errorf("set the kernel parameter %s: %w", p.Name, err)
		}
	}
	return nil
}

func (s *Stand) startNetwork(context.Context) (err error) {
	if s.Spec.Machines > 0 {
		s.Network, err = netns.New(s.Book, s.Spec.Machines)
	}
	return err
}

// zooKeeperTick allows sessions of 4 to 40 s: busy CPUs must not end the session of a server of Hadoop or HBase.
const zooKeeperTick = 2 * time.Second

func (s *Stand) startZooKeeper(ctx context.Context) error {
	if !s.Spec.ZooKeeper {
		return nil
	}
	lib, err := zookeeper.Fetch(ctx, s.Spec.Cache, s.say)
	if err != nil {
		return err
	}
	s.ZooKeeper, err = zookeeper.Start(ctx, zookeeper.Options{Book: s.Book, Lib: lib, Dir: s.Path("zookeeper"), Tick: zooKeeperTick})
	return err
}

func (s *Stand) startDisks(ctx context.Context) error {
	start := disk.Start
	if s.Spec.DisksOptional {
		start = disk.Open
	}
	for _, o := range s.Spec.Disks {
		o.RunDir = s.Dir
		d, err := start(ctx, o)
		if err != nil {
			return err
		}
		s.Disks = append(s.Disks, d)
	}
	return nil
}

func (s *Stand) prepare(ctx context.Context) error {
	if s.Spec.Prepare == nil {
		return nil
	}
	return s.Spec.Prepare(ctx, s)
}

func (s *Stand) chooseBrokerAddress(context.Context) (err error) {
	if s.brokerAddress == "" {
		s.brokerAddress, err = ports.Address()
	}
	return err
}

// BrokerAddress returns the address that the broker listens on. It is the same after a restart.
func (s *Stand) BrokerAddress() string { return s.brokerAddress }

// SetBrokerAddress sets the address that the broker listens on; the default is a free port of
// 127.0.0.1. Only Spec.Prepare may call it.
func (s *Stand) SetBrokerAddress(address string) { s.brokerAddress = address }

func (s *Stand) startBroker(ctx context.Context) error {
	if s.Spec.Broker == nil {
		return nil
	}
	if _, err := os.Stat(s.PolicyFile()); err != nil {
		if err := s.SetPolicy("default: 1\n"); err != nil {
			return err
		}
	}
	return s.StartBroker(ctx)
}

// StartBroker starts the broker. It may be called again after the broker has ended.
func (s *Stand) StartBroker(ctx context.Context) (err error) {
	s.Broker, err = s.StartDaemon(ctx, daemon.Options{Base: "broker", LogLevel: "debug",
		Broker: append([]string{"--listen", s.brokerAddress}, s.Spec.Broker(s)...)})
	return err
}

// StartDaemon starts a daemon or a broker that is not in the Spec. It sets Book, and sets Binary,
// LogLevel and Patience if they are empty. Base may be relative to the run folder. The caller must
// stop the daemon.
func (s *Stand) StartDaemon(ctx context.Context, o daemon.Options) (*daemon.Daemon, error) {
	o.Book, o.Binary = s.Book, cmp.Or(o.Binary, s.Spec.Binary)
	o.LogLevel, o.Patience = cmp.Or(o.LogLevel, "info"), cmp.Or(o.Patience, Patience)
	if !filepath.IsAbs(o.Base) {
		o.Base = s.Path(o.Base)
	}
	return daemon.Start(ctx, o)
}

func (s *Stand) startNodes(ctx context.Context) error {
	if s.Spec.Nodes == nil {
		return nil
	}
	s.nodes = s.Spec.Nodes(s)
	s.Nodes, s.starts = make([]*daemon.Daemon, len(s.nodes)), make([]int, len(s.nodes))
	if s.Spec.NodesLater {
		return nil
	}
	for i := range s.nodes {
		if err := s.StartNode(ctx, i, nil); err != nil {
			return err
		}
	}
	return nil
}

// StartNode starts daemon i. It may be called again after the daemon has ended. i may also be the
// number of a daemon that is not in the Spec. change, if not nil, changes the daemon's options for
// this start and later starts.
func (s *Stand) StartNode(ctx context.Context, i int, change func(*daemon.Options)) (err error) {
	for len(s.nodes) <= i {
		s.nodes, s.Nodes, s.starts = append(s.nodes, daemon.Options{}), append(s.Nodes, nil), append(s.starts, 0)
	}
	o := &s.nodes[i]
	if change != nil {
		change(o)
	}
	with := *o
	with.Base = cmp.Or(with.Base, fmt.Sprintf("daemon%d", i)) // a disk may be called node0
	if s.starts[i]++; s.starts[i] > 1 {
		with.Base += fmt.Sprintf("-%d", s.starts[i]) // each start has its own log
	}
	with.Socket = cmp.Or(with.Socket, s.Socket(i))
	s.Nodes[i], err = s.StartDaemon(ctx, with)
	return err
}

// RestartNode stops daemon i if it is running, and starts it with changed options.
func (s *Stand) RestartNode(ctx context.Context, i int, change func(*daemon.Options)) error {
	if err := s.Nodes[i].Stop(); err != nil {
		return err
	}
	return s.StartNode(ctx, i, change)
}

func (s *Stand) startHadoop(ctx context.Context) (err error) {
	if s.Spec.Hadoop == nil {
		return nil
	}
	cfg := s.Spec.Hadoop(s)
	if cfg.Lib == "" {
		if cfg.Lib, err = hadoop.Fetch(ctx, s.Spec.Cache, cfg.Version, s.say); err != nil {
			return err
		}
	}
	s.Lib = cfg.Lib
	compiled := make(chan error, 1)
	if s.Spec.Clients || s.Spec.ClientClasses {
		s.Classes = s.Path("classes")
		go func() { compiled <- client.Compile(ctx, s.Lib, s.Classes) }()
	} else {
		compiled <- nil
	}
	s.Hadoop, err = s.startCluster(ctx, "hadoop", cfg)
	return errors.Join(err, <-compiled)
}

func (s *Stand) startCluster(ctx context.Context, name string, cfg hadoop.Config) (*hadoop.Cluster, error) {
	cfg.RunDir, cfg.Progress = s.Path(name), s.say
	return hadoop.Start(ctx, cfg)
}

// StartCluster starts another cluster, with the same Hadoop version as the first one. The cluster's
// files are in the run folder, in the folder with the given name. Down stops this cluster before
// the first one.
func (s *Stand) StartCluster(ctx context.Context, name string, cfg hadoop.Config) (*hadoop.Cluster, error) {
	cfg.Version, cfg.Lib = s.Hadoop.Version(), s.Lib
	c, err := s.startCluster(ctx, name, cfg)
	if err == nil {
		s.clusters = append(s.clusters, c)
	}
	return c, err
}

func (s *Stand) startClients(context.Context) (err error) {
	if s.Spec.Clients {
		s.Clients, err = s.StartClients(client.Options{Log: s.Path("clients.log")})
	}
	return err
}

// StartClients starts a further JVM of HDFS clients. The Spec must have Clients or ClientClasses.
// StartClients sets Book, Lib and Classes, and sets Conf and Temp if they are empty. The caller
// must stop the JVM.
func (s *Stand) StartClients(o client.Options) (*client.JVM, error) {
	o.Book, o.Lib, o.Classes = s.Book, s.Lib, s.Classes
	o.Conf, o.Temp = cmp.Or(o.Conf, s.Hadoop.ClientConfDir()), cmp.Or(o.Temp, s.Dir)
	return client.Start(o)
}

// Path returns the path of a file in the run folder.
func (s *Stand) Path(name string) string { return filepath.Join(s.Dir, name) }

// Socket returns the path of the agents' socket of daemon i.
func (s *Stand) Socket(i int) string {
	if i < len(s.nodes) && s.nodes[i].Socket != "" {
		return s.nodes[i].Socket
	}
	if i == 0 {
		return s.Path("agent.sock")
	}
	return s.Path(fmt.Sprintf("agent%d.sock", i))
}

// Governed returns the agent settings of a cluster whose agents connect to daemon i.
func (s *Stand) Governed(i int) *hadoop.Governed {
	return &hadoop.Governed{AgentJar: s.Spec.AgentJar, Socket: s.Socket(i)}
}

// AgentArgs returns the JVM arguments that load the agent of daemon i, without the rest of
// Penstock's configuration.
func (s *Stand) AgentArgs(i int) []string {
	return []string{"-javaagent:" + s.Spec.AgentJar + "=socket=" + s.Socket(i)}
}

// DataNodes returns a DataNode for each disk, with its volume in the folder dir of that disk.
func (s *Stand) DataNodes(dir string, disks ...*disk.Disk) (nodes []hadoop.DataNode) {
	if len(disks) == 0 {
		disks = s.Disks
	}
	for _, d := range disks {
		nodes = append(nodes, hadoop.DataNode{Volumes: []hadoop.Volume{{Dir: filepath.Join(d.Mount(), dir)}}})
	}
	return nodes
}

// GovernedDataNodes returns the same as DataNodes, and adds the agent of daemon 0 to each DataNode,
// without the rest of Penstock's configuration.
func (s *Stand) GovernedDataNodes(dir string, disks ...*disk.Disk) []hadoop.DataNode {
	nodes := s.DataNodes(dir, disks...)
	for i := range nodes {
		nodes[i].JVMArgs = s.AgentArgs(0)
	}
	return nodes
}

// Down stops everything and undoes every change. It may be called twice, and after Up has failed.
func (s *Stand) Down() error {
	s.down.Do(func() { s.downErr = s.stop() })
	return s.downErr
}

func (s *Stand) stop() error {
	var errs []error
	if s.Clients != nil {
		s.Clients.Stop()
	}
	for _, c := range slices.Backward(append([]*hadoop.Cluster{s.Hadoop}, s.clusters...)) {
		if c != nil {
			errs = append(errs, c.Stop())
		}
	}
	for _, d := range append(slices.Clone(s.Nodes), s.Broker) {
		if d != nil && d.Alive() {
			errs = append(errs, d.Stop())
		}
	}
	if s.Spec.Stop != nil {
		errs = append(errs, s.Spec.Stop())
	}
	if s.ZooKeeper != nil {
		errs = append(errs, s.ZooKeeper.Stop())
	}
	for _, d := range s.Disks {
		errs = append(errs, d.Stop())
	}
	if s.Network != nil {
		errs = append(errs, s.Network.Close())
	}
	if s.Book != nil {
		errs = append(errs, s.Book.Close())
	}
	return errors.Join(errs...)
}

// KernelName returns the name of a disk's block device, as it appears in settings and metrics.
func KernelName(d *disk.Disk) string { return filepath.Base(d.Device()) }

// Usual returns the options of daemon i's last start.
func (s *Stand) Usual(i int) daemon.Options { return s.nodes[i] }
