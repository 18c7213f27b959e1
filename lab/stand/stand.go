// Package stand brings up the machine of an experiment or a test: modelled disks, node
// daemons, a broker, ZooKeeper, real Hadoop, HDFS clients, network namespaces.
//
// A Spec says what there is. Up starts it in the order of what depends on what, and waits
// until everything is connected. Down stops it in the reverse order. Each change of the machine
// is in the run folder's ledger before it is made, so that the next run undoes it after a
// crash (ledger.Recover). Parts that depend on others (a DataNode's folder is on a disk, a
// daemon's settings name a device) are functions of the Stand, which Up calls when the others
// are there.
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
	// Patience bounds each wait for an event; a busy machine needs a part of it.
	Patience = 2 * time.Minute
	// tunePatience bounds the wait for another run that has changed the same kernel parameter:
	// two experiments at once would measure each other.
	tunePatience = 30 * time.Minute
	// socketPathMax is the longest path of a Unix socket in bytes: sun_path without the final zero.
	socketPathMax = 107
)

// Spec says what a stand consists of. The zero value of a field is its default.
type Spec struct {
	// Name begins the name of the run folder, which is made in the system's temporary folder.
	Name string
	// Dir is the run folder, absolute and short, since Unix sockets are in it; default a new one.
	Dir string
	// Binary is penstock, AgentJar penstock-agent.jar, Cache the folder of downloads; absolute.
	// Default: those of the checkout that the working directory is in.
	Binary, AgentJar, Cache string
	// Public lets other users enter the run folder.
	Public bool

	// Sysctls are kernel parameters to set, such as vm/dirty_bytes, in this order. Without root
	// they stay as they are.
	Sysctls []Sysctl
	// Machines is how many network namespaces there are, all connected with this one.
	Machines int
	// ZooKeeper starts one server.
	ZooKeeper bool
	// Disks are the modelled disks; their run folder is filled in.
	Disks []disk.Options
	// DisksOptional lets plain folders take the place of modelled disks where there can be none.
	DisksOptional bool

	// Prepare is called when network, ZooKeeper and disks are there.
	Prepare func(context.Context, *Stand) error
	// Broker is the broker's arguments besides --listen; nil for no broker. The broker starts after
	// Hadoop, with the policy in PolicyFile.
	Broker func(*Stand) []string
	// Nodes are the daemons. Book, Binary, Base, Socket and Patience are filled in where empty.
	Nodes func(*Stand) []daemon.Options
	// NodesLater leaves the start of the daemons to StartNode.
	NodesLater bool
	// Hadoop is the cluster; nil for none. RunDir and Progress are filled in, Lib where empty.
	Hadoop func(*Stand) hadoop.Config
	// Clients starts a JVM of HDFS clients (package client); ClientClasses only compiles them.
	Clients, ClientClasses bool
	// Agents is how many agents Up waits for at each daemon; 0 for none.
	Agents []int

	// Stop, if not nil, ends what Prepare has started; it is called also if Prepare failed.
	Stop func() error

	// Progress receives one line per step; nil: silent.
	Progress func(format string, args ...any)
}

// Sysctl is a kernel parameter by its path below /proc/sys, and its value.
type Sysctl struct{ Name, Value string }

// LateWriteback keeps the kernel from writing dirty pages by itself: what it would write, and
// when, depends on the machine.
var LateWriteback = []Sysctl{
	{"vm/dirty_bytes", "2147483648"}, {"vm/dirty_background_bytes", "1073741824"}, {"vm/dirty_expire_centisecs", "3000"},
}

// Stand is a machine that runs. Fields of parts that the Spec does not have are zero. Its
// methods are for one goroutine at a time, except where they say otherwise.
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

	clusters      []*hadoop.Cluster // besides Hadoop
	brokerAddress string
	nodes         []daemon.Options // as they were last started
	starts        []int            // how often each node was
	down          sync.Once
	downErr       error
}

// Up brings a stand up. On an error, and when ctx ends, everything is put back.
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
		// The system's temporary folder has a short path, as Unix sockets need.
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
		return fmt.Errorf("run folder %s: the path of the agents' socket in it would have %d bytes, the kernel allows %d: choose a shorter folder",
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

// checkout returns the folder of go.mod above the working directory.
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

// SetSysctls sets kernel parameters until the stand goes down. It waits while another run has
// them. Without root it does nothing.
func (s *Stand) SetSysctls(ctx context.Context, parameters ...Sysctl) error {
	if os.Geteuid() != 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tunePatience)
	defer cancel()
	waiting := time.AfterFunc(time.Second, func() {
		s.say("another run has changed the same kernel parameters: waiting for its end, at most %v", tunePatience)
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

func (s *Stand) startZooKeeper(ctx context.Context) error {
	if !s.Spec.ZooKeeper {
		return nil
	}
	lib, err := zookeeper.Fetch(ctx, s.Spec.Cache, s.say)
	if err != nil {
		return err
	}
	s.ZooKeeper, err = zookeeper.Start(ctx, zookeeper.Options{Book: s.Book, Lib: lib, Dir: s.Path("zookeeper")})
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

// SetBrokerAddress sets where the broker listens; the default is a free port of 127.0.0.1. It is for
// Spec.Prepare.
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

// StartBroker starts the broker, or starts it again after its end.
func (s *Stand) StartBroker(ctx context.Context) (err error) {
	s.Broker, err = s.StartDaemon(ctx, daemon.Options{Base: "broker", LogLevel: "debug",
		Broker: append([]string{"--listen", s.brokerAddress}, s.Spec.Broker(s)...)})
	return err
}

// StartDaemon starts a daemon or a broker besides those of the Spec, with Book, Binary, Base, LogLevel and
// Patience filled in like those of Spec.Nodes. Base may be relative to the run folder. The caller ends it.
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

// StartNode starts daemon i, or starts it again after its end. It can be one that the Spec does
// not have. Change, if not nil, changes its options for this and later starts.
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
		with.Base += fmt.Sprintf("-%d", s.starts[i]) // each start keeps its log
	}
	with.Socket = cmp.Or(with.Socket, s.Socket(i))
	s.Nodes[i], err = s.StartDaemon(ctx, with)
	return err
}

// RestartNode ends daemon i, unless it has ended, and starts it with changed options.
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

// StartCluster starts a further cluster from Hadoop's jars. Its files are in the folder
// name of the run folder. Down stops it before Hadoop.
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

// StartClients starts a JVM of HDFS clients besides that of the Spec, which has to ask for Clients or
// ClientClasses. Book, Lib, Classes, Conf and Temp are filled in, the last two where empty. The caller ends it.
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

// Governed returns what a cluster's configuration says of the agents of daemon i.
func (s *Stand) Governed(i int) *hadoop.Governed {
	return &hadoop.Governed{AgentJar: s.Spec.AgentJar, Socket: s.Socket(i)}
}

// AgentArgs returns the JVM's arguments that load the agent of daemon i, and nothing else of
// Penstock.
func (s *Stand) AgentArgs(i int) []string {
	return []string{"-javaagent:" + s.Spec.AgentJar + "=socket=" + s.Socket(i)}
}

// DataNodes returns a DataNode for each disk, with its volume in the folder dir.
func (s *Stand) DataNodes(dir string, disks ...*disk.Disk) (nodes []hadoop.DataNode) {
	if len(disks) == 0 {
		disks = s.Disks
	}
	for _, d := range disks {
		nodes = append(nodes, hadoop.DataNode{Volumes: []hadoop.Volume{{Dir: filepath.Join(d.Mount(), dir)}}})
	}
	return nodes
}

// GovernedDataNodes returns the same with the agent of daemon 0, and nothing else of Penstock.
func (s *Stand) GovernedDataNodes(dir string, disks ...*disk.Disk) []hadoop.DataNode {
	nodes := s.DataNodes(dir, disks...)
	for i := range nodes {
		nodes[i].JVMArgs = s.AgentArgs(0)
	}
	return nodes
}

// Down stops everything and undoes every change. It may be called twice, and after a start
// that failed half-way.
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

// KernelName returns the name of a disk's block device, as settings and metrics have it.
func KernelName(d *disk.Disk) string { return filepath.Base(d.Device()) }

// Usual returns the options that daemon i was last started with.
func (s *Stand) Usual(i int) daemon.Options { return s.nodes[i] }
