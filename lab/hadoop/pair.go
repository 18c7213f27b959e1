package hadoop

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// sessionTime is ZooKeeper's of a ResourceManager: after it the standby takes over from one
// that has died. ZooKeeper gives two of its ticks at least. With less, a machine whose
// CPUs are busy for a moment has a failover that nobody asked for.
const sessionTime = 4 * time.Second

// pair reports whether there are two ResourceManagers.
func (c *Cluster) pair() bool { return len(c.ports.rm) > 1 }

// resourceManagers is how many there are.
func (cfg *Config) resourceManagers() int {
	if cfg.ZooKeeper != "" && !cfg.NoYARN {
		return 2
	}
	return 1
}

// rmID is what the configuration calls a ResourceManager of a pair.
func rmID(i int) string { return "rm" + strconv.Itoa(i+1) }

// rmName is what a ResourceManager's log is called, and of a pair the folder of its
// configuration.
func (c *Cluster) rmName(i int) string {
	if c.pair() {
		return rmID(i)
	}
	return "rm"
}

// resourceManagerSettings say where the ResourceManagers are, and how two
// of them are one service. Which of the two it is says each one's own configuration only.
func (c *Cluster) resourceManagerSettings() properties {
	const prefix = "yarn.resourcemanager."
	site := properties{}
	for i, p := range c.ports.rm {
		suffix := ""
		if c.pair() {
			suffix = "." + rmID(i)
		}
		site[prefix+"hostname"+suffix] = "127.0.0.1"
		for name, port := range map[string]int{"address": p.client, "scheduler.address": p.scheduler, "resource-tracker.address": p.tracker,
			"admin.address": p.admin, "webapp.address": p.http} {
			site[prefix+name+suffix] = "127.0.0.1:" + strconv.Itoa(port)
		}
	}
	if !c.pair() {
		return site
	}
	site[prefix+"ha.enabled"] = "true"
	site[prefix+"ha.rm-ids"] = rmID(0) + "," + rmID(1)
	site[prefix+"cluster-id"] = "penstock-lab"
	site[prefix+"recovery.enabled"] = "true"
	site[prefix+"store.class"] = "org.apache.hadoop.yarn.server.resourcemanager.recovery.ZKRMStateStore"
	site["hadoop.zk.address"] = c.cfg.ZooKeeper
	site["hadoop.zk.timeout-ms"] = strconv.FormatInt(sessionTime.Milliseconds(), 10)
	// NodeManagers and clients look for the active one once in half a minute if nobody says
	// otherwise, and a new one waits ten seconds for them before it gives containers.
	site["yarn.client.failover-sleep-base-ms"] = "200"
	site["yarn.client.failover-sleep-max-ms"] = "1000"
	site[prefix+"work-preserving-recovery.scheduling-wait-ms"] = "1000"
	return site
}

// launchResourceManager starts the next one.
func (c *Cluster) launchResourceManager() error {
	name, conf := c.rmName(len(c.rms)), "client"
	if c.pair() {
		conf = name
	}
	rm, err := c.java(jvm{name: name, conf: conf, opts: []string{quick}, class: classResourceManager})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rms = append(c.rms, rm)
	return nil
}

// ResourceManagerURL is the base of the ResourceManager's web address; of a pair's, of the
// one that was active when it was last asked for (ActiveResourceManager).
func (c *Cluster) ResourceManagerURL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resourceManagerURL(c.active)
}

// ResourceManagerURLs are those of all.
func (c *Cluster) ResourceManagerURLs() (urls []string) {
	for i := range c.ports.rm {
		urls = append(urls, c.resourceManagerURL(i))
	}
	return urls
}

func (c *Cluster) resourceManagerURL(i int) string {
	return fmt.Sprintf("http://127.0.0.1:%d", c.ports.rm[i].http)
}

// ActiveResourceManager asks the ResourceManagers who is active and gives its number, from
// 0. It is an error if none says so.
func (c *Cluster) ActiveResourceManager(ctx context.Context) (int, error) {
	var errs []error
	for i := range c.ports.rm {
		state, err := c.haState(ctx, i)
		if err == nil && state == "ACTIVE" {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.active = i
			return i, nil
		}
		if err == nil {
			err = fmt.Errorf("it is %s", state)
		}
		errs = append(errs, fmt.Errorf("%s: %w", c.rmName(i), err))
	}
	return 0, fmt.Errorf("hadoop: no ResourceManager is active: %w", errors.Join(errs...))
}

// activeURL is the address of the one that is active now. The only one is, or will be.
func (c *Cluster) activeURL(ctx context.Context) (string, error) {
	if c.pair() {
		if _, err := c.ActiveResourceManager(ctx); err != nil {
			return "", err
		}
	}
	return c.ResourceManagerURL(), nil
}

// AwaitStandby returns when one of a pair is active and the other can take over.
func (c *Cluster) AwaitStandby(ctx context.Context) error {
	return c.await(ctx, "a pair of ResourceManagers", func(ctx context.Context) error {
		active, err := c.ActiveResourceManager(ctx)
		if err != nil {
			return err
		}
		for i := range c.ports.rm {
			if i == active {
				continue
			}
			state, err := c.haState(ctx, i)
			if err != nil {
				return err
			}
			if state != "STANDBY" {
				return fmt.Errorf("%s is %s", c.rmName(i), state)
			}
		}
		return nil
	})
}

// haState is ACTIVE or STANDBY, as a ResourceManager says of itself. It redirects this
// question to nobody.
func (c *Cluster) haState(ctx context.Context, i int) (string, error) {
	var doc struct {
		ClusterInfo struct{ HAState string }
	}
	err := ask(ctx, c.resourceManagerURL(i)+"/ws/v1/cluster/info", &doc)
	return doc.ClusterInfo.HAState, err
}

// KillResourceManager ends ResourceManager i, from 0, with SIGKILL, as a crash would. It is
// an error if there is none, or it was killed already.
func (c *Cluster) KillResourceManager(i int) error {
	c.mu.Lock()
	if i < 0 || i >= len(c.rms) || c.rms[i] == nil {
		defer c.mu.Unlock()
		return fmt.Errorf("hadoop: no ResourceManager %d to kill: %d were started, and one is killed once", i, len(c.rms))
	}
	d := c.rms[i]
	c.rms[i] = nil
	c.mu.Unlock()
	d.Kill()
	return nil
}
