package hadoop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// sessionTime is the length of a ResourceManager's ZooKeeper session: after that time the standby
// takes over from a failed ResourceManager. A shorter session would lead to unwanted failovers when the CPUs are busy for
// some seconds.
const sessionTime = 10 * time.Second

// pair reports whether there are two ResourceManagers.
func (c *Cluster) pair() bool { return len(c.ports.rm) > 1 }

// resourceManagers returns the number of ResourceManagers.
func (cfg *Config) resourceManagers() int {
	if cfg.ZooKeeper != "" && !cfg.NoYARN {
		return 2
	}
	return 1
}

// rmID returns the id that the configuration gives to a ResourceManager of a pair.
func rmID(i int) string { return "rm" + strconv.Itoa(i+1) }

// rmName returns the name of a ResourceManager's log and, in a pair or with Kerberos, of its configuration folder.
func (c *Cluster) rmName(i int) string {
	if c.pair() {
		return rmID(i)
	}
	return "rm"
}

// resourceManagerSettings returns the ResourceManagers' addresses and, for two, the settings of the
// pair. A ResourceManager's own id (yarn.resourcemanager.ha.id) is only in its own configuration.
func (c *Cluster) resourceManagerSettings() properties {
	const prefix = "yarn.resourcemanager."
	site := properties{}
	for i, p := range c.ports.rm {
		suffix := ""
		if c.pair() {
			suffix = "." + rmID(i)
		}
		site[prefix+"hostname"+suffix] = c.cfg.resourceManagerHost()
		for name, port := range map[string]int{"address": p.client, "scheduler.address": p.scheduler, "resource-tracker.address": p.tracker,
			"admin.address": p.admin, "webapp.address": p.http, "webapp.https.address": p.http} {
			site[prefix+name+suffix] = net.JoinHostPort(c.cfg.resourceManagerHost(), strconv.Itoa(port))
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
	// By default NodeManagers and clients look for the active ResourceManager every half minute, and a
	// ResourceManager that becomes active waits ten seconds for NodeManagers before it allocates
	// containers.
	site["yarn.client.failover-sleep-base-ms"] = "200"
	site["yarn.client.failover-sleep-max-ms"] = "1000"
	site[prefix+"work-preserving-recovery.scheduling-wait-ms"] = "1000"
	return site
}

// launchResourceManager starts the next ResourceManager.
func (c *Cluster) launchResourceManager() error {
	name, conf := c.rmName(len(c.rms)), "client"
	if c.pair() || c.cfg.Kerberos != nil {
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

// ResourceManagerURL returns the base of the ResourceManager's web address. For a pair, it is the
// address of the ResourceManager that was active at the last call of ActiveResourceManager.
func (c *Cluster) ResourceManagerURL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resourceManagerURL(c.active)
}

// ResourceManagerURLs returns the URLs of all ResourceManagers.
func (c *Cluster) ResourceManagerURLs() (urls []string) {
	for i := range c.ports.rm {
		urls = append(urls, c.resourceManagerURL(i))
	}
	return urls
}

func (c *Cluster) resourceManagerURL(i int) string {
	scheme := "http"
	if c.https() {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(c.cfg.resourceManagerHost(), strconv.Itoa(c.ports.rm[i].http))
}

// ActiveResourceManager returns the number, from 0, of the ResourceManager that reports itself as
// active. If none is active, it returns an error.
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

// activeURL returns the address of the ResourceManager that is active now. A single ResourceManager
// is always regarded as active.
func (c *Cluster) activeURL(ctx context.Context) (string, error) {
	if c.pair() {
		if _, err := c.ActiveResourceManager(ctx); err != nil {
			return "", err
		}
	}
	return c.ResourceManagerURL(), nil
}

// AwaitStandby returns when one ResourceManager of a pair is active and the other can take over.
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

// haState returns a ResourceManager's own state, ACTIVE or STANDBY. A standby does not redirect
// this request.
func (c *Cluster) haState(ctx context.Context, i int) (string, error) {
	var doc struct {
		ClusterInfo struct{ HAState string }
	}
	err := c.askResourceManager(ctx, c.resourceManagerURL(i)+"/ws/v1/cluster/info", &doc)
	return doc.ClusterInfo.HAState, err
}

// KillResourceManager ends ResourceManager i, from 0, with SIGKILL, as a crash would. It returns an
// error if there is no such ResourceManager, or if it has been killed already.
func (c *Cluster) KillResourceManager(i int) error {
	c.mu.Lock()
	if i < 0 || i >= len(c.rms) || c.rms[i] == nil {
		defer c.mu.Unlock()
		return fmt.Errorf("hadoop: there is no ResourceManager %d to kill: %d were started, and each can be killed once", i, len(c.rms))
	}
	d := c.rms[i]
	c.rms[i] = nil
	c.mu.Unlock()
	d.Kill()
	return nil
}
