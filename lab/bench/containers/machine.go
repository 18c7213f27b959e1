package containers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"penstock/lab/cgroup"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/joined"
	"penstock/lab/netns"
	"penstock/lab/stand"
	"penstock/ops/network"
)

const (
	queue = "root.jobs"
	// diskBytes has room for all that a job and those before it leave on the only disk.
	diskBytes = 4 << 30
	// logBytes bounds a disk's request log, which nobody reads.
	logBytes = 1 << 10
	// probePort is the port of the probe's server. The containers' own ports are chosen, and are others.
	probePort = 5201
)

// machine is the environment of a turn: containers with a network and disks, Hadoop in them, and a probe.
type machine struct {
	*stand.Stand
	setup Setup
	row   Row

	router  *netns.Machine
	group   *cgroup.Group
	joining *joined.Joining
	probe   *network.Probe
	meter   *meter
}

// start starts a machine in the folder dir. On an error it undoes everything.
func start(ctx context.Context, q Request, row Row, dir string) (_ *machine, err error) {
	m := &machine{setup: q.Setup, row: row}
	dirty := q.Setup.DirtyEach * int64(row.Nodes)
	spec := stand.Spec{
		Name: "containers", Dir: dir, Binary: q.Binary, AgentJar: q.AgentJar, Cache: q.Cache, Progress: q.Progress,
		Sysctls:  stand.DirtyBytes(dirty/2, dirty),
		Machines: row.Nodes + 1, // the last one is the probe's
		Prepare:  m.prepare, Hadoop: m.cluster, Stop: m.stop,
	}
	for i := range row.Nodes {
		spec.Disks = append(spec.Disks, disk.Options{Name: fmt.Sprintf("disk%d", i), Size: diskBytes, LogBytesMax: logBytes})
	}
	if m.Stand, err = stand.Up(ctx, spec); err != nil {
		return nil, err
	}
	var servers []string
	for i := range row.Nodes {
		servers = append(servers, m.Hadoop.DataNodeAddress(i), m.Hadoop.ShuffleAddress(i))
	}
	if err := m.connect(ctx, servers); err != nil {
		return nil, errors.Join(err, m.Down())
	}
	return m, nil
}

// prepare makes the router and the cgroup of the containers.
func (m *machine) prepare(_ context.Context, s *stand.Stand) (err error) {
	if m.router, err = s.Network.Router(); err != nil {
		return err
	}
	if _, err := m.router.PassToRules(); err != nil {
		return err
	}
	if err := m.router.Masquerade(); err != nil {
		return err
	}
	// This process asks the servers over HTTP.
	if _, err := s.Network.Here(); err != nil {
		return err
	}
	m.group, err = joined.NewGroup(s.Book, fmt.Sprintf("penstock-lab-containers-%d", os.Getpid()))
	return err
}

// cluster returns the configuration of Hadoop: a DataNode, a NodeManager and a disk for each container.
func (m *machine) cluster(s *stand.Stand) hadoop.Config {
	var nodes []hadoop.Node
	for i := range m.row.Nodes {
		nodes = append(nodes, hadoop.Node{Machine: s.Network.Machines[i], Cgroup: m.group.Path, LocalDirs: []string{filepath.Join(s.Disks[i].Mount(), "local")}})
	}
	settings := maps.Clone(hadoop.SmallDisks)
	settings["mapreduce.terasort.output.replication"] = strconv.Itoa(replication(m.row.Nodes)) // its own default is 1
	return hadoop.Config{Version: m.setup.Hadoop, Nodes: nodes, Masters: m.router, DataNodes: s.DataNodes("dfs"), Replication: replication(m.row.Nodes),
		BlockSize: m.setup.BlockBytes, TaskSlots: 1, Queues: []string{queue}, Settings: settings}
}

// connect starts the probe and the meter and, for the set-up Joined, the joining of connections to the servers and to
// the probe's.
func (m *machine) connect(ctx context.Context, servers []string) (err error) {
	names := make([]string, len(m.Disks))
	for i, d := range m.Disks {
		names[i] = stand.KernelName(d)
	}
	if m.meter, err = newMeter(m.group.Path, names); err != nil {
		return err
	}
	first, last := m.Network.Machines[0], m.Network.Machines[m.row.Nodes]
	m.probe, err = network.StartProbe(network.ProbePlace{Client: last.Do, Server: first.Do, Address: netip.AddrPortFrom(first.Address, probePort), Cgroup: m.group.Path},
		network.DefaultSetup())
	if err != nil || m.row.SetUp != Joined {
		return err
	}
	ports := []uint16{probePort}
	for _, s := range servers {
		address, err := netip.ParseAddrPort(s)
		if err != nil {
			return err
		}
		ports = append(ports, address.Port())
	}
	m.joining, err = joined.Start(ctx, joined.Options{Book: m.Book, Dir: m.Dir, Group: m.group, Ports: ports, Do: m.router.Do})
	return err
}

// stop stops what prepare and connect have started, when Hadoop has ended.
func (m *machine) stop() (err error) {
	if m.probe != nil {
		err = m.probe.Close()
	}
	if m.joining != nil {
		err = errors.Join(err, m.joining.Stop())
	}
	if m.group != nil {
		err = errors.Join(err, m.group.Remove())
	}
	return err
}

// joinedBytes returns how many bytes went straight from one socket to another so far.
func (m *machine) joinedBytes() uint64 {
	if m.joining == nil {
		return 0
	}
	return m.joining.Bytes()
}

// limit turns the disks' models on or off.
func (m *machine) limit(on bool) error {
	if on {
		return m.SetModel(m.setup.model())
	}
	return m.SetModel(disk.Model{})
}
