package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/lab/poll"
	"penstock/lab/process"
)

// defaultVolume is the default name of a GlusterFS volume.
const defaultVolume = "shared"

// Gluster is a GlusterFS volume over several hosts.
type Gluster struct {
	hosts  []*Host
	volume string
	bricks []string
}

// GlusterOptions are the options of a volume.
type GlusterOptions struct {
	Name     string   // default "shared"
	Bricks   []string // folder of each host's brick
	Replicas int      // copies of each file, on successive hosts; values below 1 count as 1
	ShardMiB int      // size of shards; 0: files are whole
	Set      []string // further settings of the volume, such as "cluster.nufa=on"
}

// StartGluster starts GlusterFS on the hosts, and makes and starts a volume.
func StartGluster(ctx context.Context, hosts []*Host, o GlusterOptions) (*Gluster, error) {
	g := &Gluster{hosts: hosts}
	for _, h := range hosts {
		if _, err := h.Start("glusterd", "glusterd", "--no-daemon", "--pid-file=/run/glusterd.pid", "--log-file=/var/log/glusterfs/glusterd.log"); err != nil {
			return nil, err
		}
	}
	for _, h := range hosts {
		if err := g.until(ctx, h, "pool", "list"); err != nil {
			return nil, err
		}
	}
	for _, h := range hosts[1:] {
		if err := g.until(ctx, hosts[0], "peer", "probe", h.Name); err != nil {
			return nil, err
		}
	}
	for _, h := range hosts {
		if err := g.connected(ctx, h); err != nil {
			return nil, err
		}
	}
	return g.Volume(ctx, o)
}

// Volume makes and starts a volume on the servers of g.
func (g *Gluster) Volume(ctx context.Context, o GlusterOptions) (*Gluster, error) {
	if len(o.Bricks) != len(g.hosts) {
		return nil, fmt.Errorf("storage: %d bricks for %d hosts", len(o.Bricks), len(g.hosts))
	}
	g = &Gluster{hosts: g.hosts, volume: cmp.Or(o.Name, defaultVolume), bricks: o.Bricks}
	create := []string{"volume", "create", g.volume}
	if o.Replicas > 1 {
		create = append(create, "replica", strconv.Itoa(o.Replicas))
	}
	for i, h := range g.hosts {
		if err := os.MkdirAll(o.Bricks[i], 0o755); err != nil {
			return nil, err
		}
		create = append(create, h.Name+":"+o.Bricks[i])
	}
	if _, err := g.gluster(ctx, g.hosts[0], append(create, "force")...); err != nil {
		return nil, err
	}
	settings := o.Set
	if o.ShardMiB > 0 {
		settings = append([]string{"features.shard=on", fmt.Sprintf("features.shard-block-size=%dMB", o.ShardMiB)}, settings...)
	}
	for _, s := range settings {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("storage: setting %q: give name=value", s)
		}
		if _, err := g.gluster(ctx, g.hosts[0], "volume", "set", g.volume, name, value); err != nil {
			return nil, err
		}
	}
	_, err := g.gluster(ctx, g.hosts[0], "volume", "start", g.volume)
	return g, err
}

// connected waits until a host's server has accepted all others and is connected with them. A probe returns earlier.
func (g *Gluster) connected(ctx context.Context, h *Host) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last string
	err := poll.Until(ctx, 200*time.Millisecond, func() (_ bool, err error) {
		if last, err = g.gluster(ctx, h, "peer", "status"); err != nil {
			last = err.Error()
		}
		return strings.Count(last, "State: Peer in Cluster (Connected)") == len(g.hosts)-1, nil
	})
	if err != nil {
		return fmt.Errorf("storage: wait for the servers of GlusterFS: %w; %s knows:\n%s", err, h.Name, last)
	}
	return nil
}

// gluster runs a command of GlusterFS's administration.
func (g *Gluster) gluster(ctx context.Context, h *Host, args ...string) (string, error) {
	return h.Run(ctx, append([]string{"gluster", "--mode=script"}, args...)...)
}

// until repeats a command until it succeeds: the servers need some time to know each other.
func (g *Gluster) until(ctx context.Context, h *Host, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	err := poll.Until(ctx, 200*time.Millisecond, func() (bool, error) {
		_, last = g.gluster(ctx, h, args...)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// Mount mounts the volume on a host, which may be without a server, and returns the client's process. The folder at must
// exist. It stays empty outside the hosts.
func (g *Gluster) Mount(ctx context.Context, h *Host, at string, options ...string) (*process.Process, error) {
	server := g.hosts[0].Name
	if slices.ContainsFunc(g.hosts, func(s *Host) bool { return s.Name == h.Name }) {
		server = "localhost"
	}
	argv := append([]string{"glusterfs", "--no-daemon", "--volfile-server=" + server, "--volfile-id=" + g.volume, "--log-file=/var/log/glusterfs/client.log"}, options...)
	return h.mount(ctx, "glusterfs", at, append(argv, at)...)
}

// mount starts a client that serves a mount, and returns when the mount is there.
func (h *Host) mount(ctx context.Context, name, at string, argv ...string) (*process.Process, error) {
	client, err := h.Start(name, argv...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = poll.Until(ctx, 50*time.Millisecond, func() (bool, error) {
		if !client.Alive() {
			return false, client.Failure()
		}
		_, err := h.Run(ctx, "mountpoint", "-q", at)
		return err == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("mount %s on %s: %w", at, h.Name, err)
	}
	return client, nil
}

// KillBrick ends the server of a host's brick with SIGKILL. Only replicas on other hosts remain.
func (g *Gluster) KillBrick(ctx context.Context, host int) error {
	h := g.hosts[host]
	_, err := h.Run(ctx, "pkill", "-KILL", "-f", "^\\S*glusterfsd .*--brick-name "+g.bricks[host]+"( |$)")
	return err
}
