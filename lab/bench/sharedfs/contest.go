package sharedfs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"penstock/broker/certs"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ports"
	"penstock/lab/stand"
	"penstock/lab/storage"
)

// contest is the machine of a row with storage clients: hosts with servers of GlusterFS and NodeManagers, and hosts with storage
// clients only. There are two volumes, on disks of their own. The storage clients use the first one. TeraSorts use the second one in
// the row floor, and else the first one, too. Local disks hold intermediate data. All rows have the same disks, volumes and mounts.
//
// On real machines, servers and storage clients do not wait for the CPUs of tasks for long. Here, all machines share a few CPUs. So the
// servers, their daemons and the storage clients have real-time priority, in all rows.
type contest struct {
	*machine
	others   []*storage.Host // with storage clients
	service  string          // where others mount the first volume
	files    []files         // of each of the others
	profiles []string        // of the service's disks, if segregated
	here     string          // address of this process and the broker, and the name of the broker's certificate
}

// How the daemons are reached.
const (
	taskSocket = "/run/penstock.sock" // each host has a /run of its own
	peersPort  = 9718
)

// startContest starts a machine in the folder dir. On an error, it undoes all changes.
func startContest(ctx context.Context, q Request, r row, dir string) (*contest, error) {
	m, spec, err := newMachine(q, r, dir)
	if err != nil {
		return nil, err
	}
	c := &contest{machine: m, service: filepath.Join(dir, "service")}
	n, b := q.Setup.Hosts, q.Setup.Beside
	spec.Machines = n + b.Clients
	spec.Sysctls = stand.DirtyBytes(b.Background, q.Setup.DirtyBytes)
	spec.Disks = slices.Concat(disks("service", n), disks("other", n), disks("local", n))
	spec.Prepare, spec.Hadoop = c.prepare, c.cluster
	if r.beside == segregated {
		spec.Broker, spec.Nodes = c.broker, c.nodes
	}
	if m.Stand, err = stand.Up(ctx, spec); err != nil {
		return nil, err
	}
	for i := range c.Nodes {
		err = errors.Join(err, c.Await(ctx, "the broker's answer to the daemon of "+c.hosts[i].Name, func(ctx context.Context) (bool, error) {
			doc, err := c.Status(ctx, i)
			return err == nil && doc.Cluster.Broker != "", err
		}))
	}
	if err != nil {
		return nil, errors.Join(err, c.Down())
	}
	return c, nil
}

// parts returns the disks of the first volume, those of the second one, and those for intermediate data.
func parts(s *stand.Stand) (service, other, local []*disk.Disk) {
	n := len(s.Disks) / 3
	return s.Disks[:n], s.Disks[n : 2*n], s.Disks[2*n:]
}

// direct makes requests with O_DIRECT pass all caches, to the server's disk.
var direct = []string{"performance.strict-o-direct=on", "network.remote-dio=disable"}

// prepare starts the servers and mounts the volumes.
func (c *contest) prepare(ctx context.Context, s *stand.Stand) error {
	here, err := s.Network.Here()
	if err != nil {
		return err
	}
	hosts, err := c.makeHosts(ctx, s)
	if err != nil {
		return err
	}
	n := c.setup.Hosts
	c.hosts, c.others = hosts[:n], hosts[n:]
	if _, err := c.others[0].Run(ctx, "fio", "--version"); err != nil {
		return fmt.Errorf("fio does not run: %w", err)
	}
	if err := os.MkdirAll(c.service, 0o755); err != nil {
		return err
	}
	var servers []*storage.Host
	for _, h := range c.hosts {
		servers = append(servers, h.Urgent())
	}
	service, other, _ := parts(s)
	first, err := storage.StartGluster(ctx, servers, storage.GlusterOptions{Bricks: folders(service), Set: direct})
	if err != nil {
		return err
	}
	second, err := first.Volume(ctx, storage.GlusterOptions{Name: "other", Bricks: folders(other), Set: direct})
	if err != nil {
		return err
	}
	for _, h := range c.others {
		if _, err := first.Mount(ctx, h.Urgent(), c.service); err != nil {
			return err
		}
	}
	sorts := first
	if c.row.beside == floor {
		sorts = second
	}
	err = c.mountAll(ctx, s, c.glusterAt(sorts))
	if err != nil || c.row.beside != segregated {
		return err
	}
	return c.prepareDaemons(s, here)
}

// prepareDaemons makes the daemons' certificates and the profiles of the disks.
func (c *contest) prepareDaemons(s *stand.Stand, here netip.Addr) error {
	port, err := ports.Free(1)
	if err != nil {
		return err
	}
	s.SetBrokerAddress(netip.AddrPortFrom(here, uint16(port[0])).String())
	names := []string{here.String()}
	for _, h := range c.hosts {
		names = append(names, h.Name)
	}
	if _, err := certs.Make(c.certificates(), names, nil); err != nil {
		return err
	}
	c.here = here.String()
	service, _, _ := parts(s)
	for _, d := range service {
		profile, err := s.WriteProfile(d, c.setup.model(), c.setup.Beside.Turn)
		if err != nil {
			return err
		}
		c.profiles = append(c.profiles, profile)
	}
	return nil
}

func (c *contest) certificates() string { return filepath.Join(c.state, "certs") }

func (c *contest) certificate(name, ending string) string {
	return filepath.Join(c.certificates(), name+ending)
}

func (c *contest) broker(*stand.Stand) []string {
	return []string{"--ca", c.certificate("ca", ".pem"), "--cert", c.certificate(c.here, ".pem"), "--key", c.certificate(c.here, ".key")}
}

// nodes returns the daemons of the servers. The TeraSorts have equal weights.
func (c *contest) nodes(s *stand.Stand) (all []daemon.Options) {
	service, _, _ := parts(s)
	for i, h := range c.hosts {
		all = append(all, daemon.Options{Mode: "enforce", LogLevel: "info", Socket: taskSocket, By: h.Urgent().Args(), Listen: h.IP() + ":0",
			Device: fmt.Sprintf("  profile: %s\n  storage_share: %v\n  depth: {max: 1}\n", c.profiles[i], c.setup.Beside.Share),
			More: fmt.Sprintf("%sstorage: {directory: %s, names: [%s, %s]}\nbroker: {addresses: [%q], node: %s, ca: %s, cert: %s, key: %s, peers: '0.0.0.0:%d'}\n", daemon.Believe,
				folders(service)[i], h.Name, h.IP(), s.BrokerAddress(), h.Name, c.certificate("ca", ".pem"), c.certificate(h.Name, ".pem"), c.certificate(h.Name, ".key"), peersPort)})
	}
	return all
}

// cluster returns the configuration of YARN. The queue starts an application only if there is room for one more ApplicationMaster, and has
// room for AtOnce of them.
func (c *contest) cluster(s *stand.Stand) hadoop.Config {
	cfg, b := c.machine.cluster(s), c.setup.Beside
	cfg.TaskSlots = b.taskSlots(c.setup.Hosts)
	cfg.Settings["yarn.scheduler.capacity.maximum-am-resource-percent"] = strconv.FormatFloat(b.masters(c.setup.Hosts), 'f', 6, 64)
	// The clients of many TeraSorts that wait for the queue need little time of the CPUs.
	cfg.Settings["mapreduce.client.progressmonitor.pollinterval"] = "5000"
	cfg.Settings["mapreduce.client.completion.pollinterval"] = "5000"
	_, _, local := parts(s)
	for i := range cfg.Nodes {
		cfg.Nodes[i].LocalDirs = []string{filepath.Join(local[i].Mount(), "local")}
	}
	if c.row.beside == segregated {
		cfg.Jars = append(cfg.Jars, s.Spec.AgentJar)
		cfg.Settings["penstock.sharedfs.turns"] = "true"
		cfg.Settings["penstock.sharedfs.turn.bytes"] = strconv.FormatInt(b.Turn, 10)
		cfg.Settings["penstock.socket"] = taskSocket
	}
	return cfg
}

// taskSlots returns the number of containers of each of n nodes, besides one: all TeraSorts that run at a time have room for all their maps.
func (b Beside) taskSlots(n int) int {
	return int(math.Ceil(float64(b.AtOnce*(1+b.Files)) / float64(n)))
}

// masters returns the part of the queue's memory that ApplicationMasters may have on n nodes. The scheduler rounds it up to whole
// containers. All containers have the same size.
func (b Beside) masters(n int) float64 {
	return (float64(b.AtOnce) - 0.5) / float64(n*(1+b.taskSlots(n)))
}

// limit turns the disks' models on or off.
func (c *contest) limit(on bool) error {
	if !on {
		return c.SetModel(disk.Model{})
	}
	service, other, local := parts(c.Stand)
	return errors.Join(c.SetModel(c.setup.model(), slices.Concat(service, other)...), c.SetModel(disk.SSD(disk.SSDRate), local...))
}
