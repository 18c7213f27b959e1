package sharedfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"penstock/lab/cgroup"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
	"penstock/lab/pagerank"
	"penstock/lab/stand"
	"penstock/lab/storage"
)

const (
	queue     = "root.jobs"
	diskBytes = 4 << 30
	logBytes  = 1 << 10 // of a disk's request log, which nobody reads
)

// machine is the environment of a turn: hosts with disks and a file system, and a YARN on it.
type machine struct {
	*stand.Stand
	setup   Setup
	row     row
	jar     string // penstock-sharedfs.jar
	hosts   []*storage.Host
	book    *ledger.Ledger // of the hosts' processes; nil: there are no hosts yet
	mount   string
	state   string         // folder of what hosts keep. It is new for each row, and Dir is that of all rows of a run.
	classes string         // PageRank's
	cpus    string         // of YARN, a taskset list; "": all
	group   *cgroup.Memory // of YARN; nil: it has all memory
}

// root returns the folder that is shared:///.
func (m *machine) root() string { return filepath.Join(m.mount, "hadoop") }

// newMachine returns a machine that has not been started, and the parts of its description that all rows share.
func newMachine(q Request, r row, dir string) (*machine, stand.Spec, error) {
	m := &machine{setup: q.Setup, row: r, jar: filepath.Join(filepath.Dir(q.AgentJar), "penstock-sharedfs.jar"), mount: filepath.Join(dir, "mount")}
	if _, err := os.Stat(m.jar); err != nil {
		return nil, stand.Spec{}, fmt.Errorf("run make build first: %w", err)
	}
	return m, stand.Spec{Name: "sharedfs", Dir: dir, Binary: q.Binary, AgentJar: q.AgentJar, Cache: q.Cache, Progress: q.Progress,
		Machines: q.Setup.Hosts, Prepare: m.prepare, Hadoop: m.cluster, Stop: m.stop}, nil
}

// start starts a machine in the folder dir. On an error, start undoes all changes.
func start(ctx context.Context, q Request, r row, dir string) (*machine, error) {
	m, spec, err := newMachine(q, r, dir)
	if err != nil {
		return nil, err
	}
	spec.Sysctls = stand.DirtyBytes(q.Setup.DirtyBytes/2, q.Setup.DirtyBytes)
	spec.Disks = disks("disk", q.Setup.Hosts)
	m.Stand, err = stand.Up(ctx, spec)
	return m, err
}

func disks(name string, n int) (all []disk.Options) {
	for i := range n {
		all = append(all, disk.Options{Name: fmt.Sprintf("%s%d", name, i), Size: diskBytes, LogBytesMax: logBytes})
	}
	return all
}

// prepare starts the file system and mounts it on each host.
func (m *machine) prepare(ctx context.Context, s *stand.Stand) (err error) {
	if _, err := s.Network.Here(); err != nil { // this process asks YARN over HTTP
		return err
	}
	if m.hosts, err = m.makeHosts(ctx, s); err != nil {
		return err
	}
	mount, err := m.startFileSystem(ctx, folders(s.Disks))
	if err != nil {
		return err
	}
	if err := m.mountAll(ctx, s, mount); err != nil {
		return err
	}
	return m.prepareJob(ctx, s)
}

// makeHosts makes a host of each machine of the network.
func (m *machine) makeHosts(ctx context.Context, s *stand.Stand) ([]*storage.Host, error) {
	m.book = s.Book
	programs, err := storage.Fetch(ctx, s.Spec.Cache, s.Spec.Progress)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(m.mount, 0o755); err != nil {
		return nil, err
	}
	if m.state, err = os.MkdirTemp(s.Dir, "hosts-"); err != nil {
		return nil, err
	}
	return storage.Hosts(ctx, s.Book, s.Network.Machines, programs, m.state)
}

// folders returns the folder on each disk for a file system's data.
func folders(disks []*disk.Disk) (all []string) {
	for _, d := range disks {
		all = append(all, filepath.Join(d.Mount(), "data"))
	}
	return all
}

// mountAll mounts the file system on each host, and makes the folders of Hadoop.
func (m *machine) mountAll(ctx context.Context, s *stand.Stand, mount mounter) error {
	for _, h := range m.hosts {
		if err := mount(ctx, h); err != nil {
			return err
		}
	}
	names := ""
	for _, h := range m.hosts {
		names += fmt.Sprintf("%s %s\n", h.Name, h.IP())
	}
	argv := []string{"mkdir", "-p", m.root()}
	for _, h := range m.hosts {
		argv = append(argv, m.local(h)) // NodeManagers that make the folder above at the same time may fail
	}
	_, err := m.hosts[0].Run(ctx, argv...)
	return errors.Join(err, os.WriteFile(m.names(s), []byte(names), 0o644))
}

// prepareJob makes what only some rows need: the classes of PageRank, and the part of the machine for YARN.
func (m *machine) prepareJob(ctx context.Context, s *stand.Stand) (err error) {
	if m.row.rank {
		m.classes = s.Path("pagerank")
		lib, err := hadoop.Fetch(ctx, s.Spec.Cache, m.setup.Hadoop, s.Spec.Progress)
		if err != nil {
			return err
		}
		return pagerank.Compile(ctx, lib, m.classes)
	}
	if p := m.row.part; p != (part{}) {
		if m.cpus, err = p.cpus(); err != nil {
			return err
		}
		m.group, err = cgroup.MakeMemory(s.Book, fmt.Sprintf("penstock-lab-sharedfs-%d", os.Getpid()), p.limit(m.setup))
	}
	return err
}

// stop ends the file system, which uses the disks, and removes what prepareJob has made. Hadoop has ended before.
func (m *machine) stop() error {
	var err error
	if m.book != nil {
		err = m.book.EndProcesses()
	}
	if m.group != nil {
		err = errors.Join(err, m.group.Remove())
	}
	return err
}

// names returns the path of the file that translates the servers' names.
func (m *machine) names(s *stand.Stand) string { return s.Path("names") }

// local returns a host's folder for intermediate data on the file system.
func (m *machine) local(h *storage.Host) string { return filepath.Join(m.mount, "local", h.IP()) }

// mounter mounts a file system on a host.
type mounter func(context.Context, *storage.Host) error

// startFileSystem returns a function that mounts the file system on a host.
func (m *machine) startFileSystem(ctx context.Context, folders []string) (mounter, error) {
	if m.row.fs == Moose {
		fs, err := storage.StartMoose(ctx, m.hosts, storage.MooseOptions{Chunks: folders})
		return func(ctx context.Context, h *storage.Host) error {
			_, err := fs.Mount(ctx, h, m.mount)
			return err
		}, err
	}
	fs, err := storage.StartGluster(ctx, m.hosts, storage.GlusterOptions{Bricks: folders})
	return m.glusterAt(fs), err
}

// glusterAt returns a function that mounts a volume of GlusterFS on a host, for Hadoop.
func (m *machine) glusterAt(fs *storage.Gluster) mounter {
	return func(ctx context.Context, h *storage.Host) error {
		_, err := fs.Mount(ctx, h, m.mount)
		return err
	}
}

// cluster returns the configuration of YARN: a NodeManager on each host. Each has room for all maps, because a file system that places
// files by their names may place all of them on one host.
func (m *machine) cluster(s *stand.Stand) hadoop.Config {
	layout := "none"
	if m.row.near {
		layout = m.row.fs
	}
	settings := map[string]string{
		"fs.defaultFS":                                "shared:///",
		"fs.AbstractFileSystem.shared.impl":           "penstock.sharedfs.SharedFs",
		"penstock.sharedfs.mount":                     m.root(),
		"penstock.sharedfs.layout":                    layout,
		"penstock.sharedfs.gluster.shard":             "0", // whole files
		"penstock.sharedfs.hosts":                     m.names(s),
		"penstock.sharedfs.shuffle.dirs":              filepath.Join(m.mount, "local", "{host}"),
		"yarn.scheduler.capacity.node-locality-delay": strconv.Itoa(10 * m.setup.Hosts),
		// Without this, the last containers of a job go to any node after one or two heartbeats.
		"yarn.scheduler.capacity.rack-locality-additional-delay": "0",
		"mapreduce.task.io.sort.mb":                              strconv.Itoa(m.setup.SortMB),
	}
	if m.row.merge {
		settings["mapreduce.job.reduce.shuffle.consumer.plugin.class"] = "penstock.sharedfs.shuffle.SharedShuffle"
	}
	cfg := hadoop.Config{Version: m.setup.Hadoop, Masters: m.hosts[0], NoHDFS: true, Jars: []string{m.jar}, Settings: settings,
		TaskSlots: m.setup.Files, Queues: []string{queue}}
	if m.row.rank {
		cfg.Jars = append(cfg.Jars, m.classes)
	}
	group := ""
	if m.group != nil {
		group = m.group.Path
		settings["yarn.nodemanager.resource.memory-mb"] = strconv.Itoa(m.row.part.containersMiB(m.setup.YARN))
	}
	for i, h := range m.hosts {
		local := m.local(h)
		if !m.row.shared {
			local = filepath.Join(s.Disks[i].Mount(), "local")
		}
		cfg.Nodes = append(cfg.Nodes, hadoop.Node{Machine: h, LocalDirs: []string{local}, CPUs: m.cpus, Cgroup: group})
	}
	return cfg
}

// limit turns the disks' models on or off.
func (m *machine) limit(on bool) error {
	if on {
		return m.SetModel(m.setup.model())
	}
	return m.SetModel(disk.Model{})
}
