package hadoop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/lab/ledger"
	"penstock/lab/poll"
	"penstock/lab/process"
	"penstock/ops/install"
)

const (
	classNameNode        = "org.apache.hadoop.hdfs.server.namenode.NameNode"
	classDataNode        = "org.apache.hadoop.hdfs.server.datanode.DataNode"
	classResourceManager = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
	classNodeManager     = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
)

// startPatience bounds the start of a cluster.
const startPatience = 3 * time.Minute

// Start starts a new cluster and returns when it is ready for work: the NameNode is out of safe
// mode with every DataNode live, and the ResourceManager is active with every NodeManager
// registered. A second ResourceManager becomes ready later (AwaitStandby). If Start fails, it stops
// everything that it has started and keeps the logs. The error contains the last lines of the
// failed daemon's log.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	c := &Cluster{cfg: cfg, logf: cfg.Progress}
	if c.logf == nil {
		c.logf = func(string, ...any) {}
	}
	var err error
	if c.ports, err = pickPorts(cfg.resourceManagers(), len(cfg.DataNodes), cfg.NodeManagers); err != nil {
		return nil, err
	}
	if c.book, err = ledger.Open(cfg.RunDir); err != nil {
		return nil, err
	}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(err, c.book.Close())
	}
	if err := c.launch(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// prepare makes the run folder and every daemon's configuration. It deletes an earlier cluster's
// files in the run folder, because a client's old output could be mistaken for new output. It never
// empties volumes outside the run folder.
func (c *Cluster) prepare() error {
	for _, d := range []string{"conf", "data", "java", "logs", "tmp"} {
		if err := os.RemoveAll(filepath.Join(c.cfg.RunDir, d)); err != nil {
			return err
		}
	}
	for _, d := range []string{"tmp", "logs", "data/nn", "java"} {
		if err := os.MkdirAll(filepath.Join(c.cfg.RunDir, d), 0o755); err != nil {
			return err
		}
	}
	for _, dn := range c.cfg.DataNodes {
		for _, v := range dn.Volumes {
			if _, err := os.Stat(filepath.Join(v.Dir, "current")); err == nil {
				return fmt.Errorf("hadoop: volume %s holds another cluster's data; empty it or choose another folder", v.Dir)
			}
			if err := os.MkdirAll(v.Dir, 0o700); err != nil {
				return err
			}
		}
	}
	confs := map[string]properties{"client": nil}
	if c.pair() {
		for i := range c.ports.rm {
			confs[c.rmName(i)] = properties{"yarn.resourcemanager.ha.id": rmID(i)}
		}
	}
	if c.cfg.Kerberos != nil {
		for i := range c.ports.rm {
			if name := c.rmName(i); confs[name] == nil {
				confs[name] = properties{}
			}
			maps.Copy(confs[c.rmName(i)], c.resourceManagerSite())
		}
	}
	for i := range c.cfg.DataNodes {
		confs[fmt.Sprintf("dn%d", i)] = c.dataNodeSite(i)
	}
	for i := range c.cfg.NodeManagers {
		confs[nodeManagerName(i)] = c.nodeManagerSite(i)
	}
	for name, own := range confs {
		if err := c.writeConf(name, own); err != nil {
			return err
		}
	}
	if len(c.cfg.Nodes) > 0 {
		text, err := c.cfg.hosts()
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.hostsFile(), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := c.secure(); err != nil {
		return err
	}
	return c.govern()
}

func (c *Cluster) launch(ctx context.Context) error {
	yarn := "no YARN"
	if !c.cfg.NoYARN {
		yarn = fmt.Sprintf("%d ResourceManager(s), %d NodeManager(s)", len(c.ports.rm), c.cfg.NodeManagers)
	}
	hdfs := "no HDFS"
	if !c.cfg.NoHDFS {
		hdfs = fmt.Sprintf("NameNode, %d DataNode(s)", len(c.cfg.DataNodes))
	}
	c.logf("Hadoop %s: starting %s, %s", c.cfg.Version, hdfs, yarn)
	begin := time.Now()
	// The ResourceManager needs no other daemon, so it starts during the formatting.
	if !c.cfg.NoYARN {
		if err := c.launchResourceManager(); err != nil {
			return err
		}
	}
	if !c.cfg.NoHDFS {
		if _, err := c.tool(ctx, "nn-format", 128, classNameNode, "-format", "-force", "-nonInteractive"); err != nil {
			return err
		}
		var err error
		if c.nn, err = c.java(jvm{name: "nn", conf: "client", opts: []string{quick}, class: classNameNode}); err != nil {
			return err
		}
	}
	for i := range c.cfg.NodeManagers {
		p, err := c.launchNodeManager(i)
		if err != nil {
			return err
		}
		c.nms = append(c.nms, p)
	}
	for i := range c.cfg.DataNodes {
		dn, err := c.launchDataNode(i)
		if err != nil {
			return err
		}
		c.dns = append(c.dns, dn)
	}
	if !c.cfg.NoHDFS {
		if err := c.await(ctx, "NameNode and DataNodes", c.hdfsReady); err != nil {
			return err
		}
		c.logf("  HDFS ready after %.1f s: %s", time.Since(begin).Seconds(), c.NameNodeURL())
	}
	if c.cfg.NoYARN {
		return nil
	}
	if err := c.await(ctx, "ResourceManager and NodeManagers", c.yarnReady); err != nil {
		return err
	}
	c.logf("  YARN ready after %.1f s: %s", time.Since(begin).Seconds(), c.ResourceManagerURL())
	if c.pair() {
		// The second ResourceManager starts only now. So the first one is active, and the start of
		// the cluster has not waited for the second.
		return c.launchResourceManager()
	}
	return nil
}

// nodeManagerName returns the name of a NodeManager's log and configuration folder.
func nodeManagerName(i int) string { return fmt.Sprintf("nm%d", i) }

func (c *Cluster) launchNodeManager(i int) (*process.Process, error) {
	node := c.cfg.node(i)
	nm := jvm{name: nodeManagerName(i), opts: []string{quick}, ownPIDs: os.Geteuid() == 0, class: classNodeManager, machine: node.Machine, cpus: node.CPUs, cgroup: node.Cgroup}
	if g := c.cfg.Governed; g != nil {
		nm.opts = append(nm.opts, install.NodeManagerOption(g.AgentJar, g.Socket))
	}
	return c.java(nm)
}

func (c *Cluster) launchDataNode(i int) (*process.Process, error) {
	dn := c.cfg.DataNodes[i]
	args := dn.JVMArgs
	if g := c.cfg.Governed; g != nil {
		args = append([]string{install.DataNodeOption(g.AgentJar, cmp.Or(dn.Socket, g.Socket))}, args...)
	}
	node := c.cfg.node(i)
	return c.java(jvm{name: fmt.Sprintf("dn%d", i), heapMB: dn.HeapMB, opts: args, cpus: dn.CPUs, class: classDataNode, wrapper: dn.Wrapper, machine: node.Machine, cgroup: node.Cgroup})
}

// env returns the environment of daemons and clients, without variables of the caller's own Hadoop.
func (c *Cluster) env(conf string) []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "HADOOP_") || strings.HasPrefix(name, "YARN_") || strings.HasPrefix(name, "HDFS_") ||
			name == "CLASSPATH" || name == "JAVA_TOOL_OPTIONS" || name == "_JAVA_OPTIONS" || name == "JAVA_HOME" {
			continue
		}
		env = append(env, kv)
	}
	return append(env,
		"CLASSPATH="+c.confDir(conf)+":"+c.cfg.jars(":"),
		"HADOOP_CONF_DIR="+c.confDir(conf),
		"JAVA_HOME="+c.javaHome("", ""))
}

// jvm is a JVM to start.
type jvm struct {
	name    string   // name of its log
	conf    string   // name of its configuration folder; default: name
	heapMB  int      // default 256
	opts    []string // in addition to jvmOpts
	env     []string // in addition to Cluster.env
	cpus    string   // a taskset list; empty: all
	ownPIDs bool
	wrapper []string // as in DataNode
	machine Machine  // nil: that of the masters, or the caller's
	cgroup  string   // folder; "": the caller's
	class   string
	args    []string
}

func (c *Cluster) java(j jvm) (*process.Process, error) {
	home, err := c.JavaHome(j.cpus, j.cgroup)
	if err != nil {
		return nil, err
	}
	var argv []string
	if j.ownPIDs {
		// /proc must show the process ids of the new namespace. Otherwise task JVMs would count
		// another process's CPU time as their own.
		argv = []string{"unshare", "--mount", "--propagation", "slave", "--mount-proc"}
	}
	argv = slices.Concat(argv, j.wrapper, []string{filepath.Join(home, "bin", "java")}, c.jvmOpts(cmp.Or(j.heapMB, 256), j.opts...), []string{j.class}, j.args)
	return process.Start(process.Options{Book: c.book, Name: j.name, Log: filepath.Join(c.LogDir(), j.name+".log"),
		Dir: c.cfg.RunDir, Env: append(c.env(cmp.Or(j.conf, j.name)), j.env...), OwnPIDs: j.ownPIDs}, c.on(j.machine, argv)...)
}

// tool runs a program of Hadoop to its end. It returns the path of the log with the program's
// output, even after a failure.
func (c *Cluster) tool(ctx context.Context, name string, heapMB int, class string, args ...string) (log string, err error) {
	p, err := c.java(jvm{name: name, conf: "client", heapMB: heapMB, opts: []string{quick}, env: c.cfg.userEnv(""), class: class, args: args})
	if err != nil {
		return "", err
	}
	err = p.Wait(ctx)
	p.Kill() // if ctx has ended first
	return p.Log(), err
}

// javaHome returns the path of a folder that replaces a Java installation. JVMs started from it run
// only on the given CPUs and in the given cgroup.
func (c *Cluster) javaHome(cpus, cgroup string) string {
	if cpus == "" {
		cpus = "all"
	}
	if cgroup != "" {
		cpus += "-" + filepath.Base(cgroup)
	}
	return filepath.Join(c.cfg.RunDir, "java", cpus)
}

// JavaHome makes the folder of javaHome and returns its path. bin/java in it is a script that joins
// the cgroup (its folder; "": none), binds itself to the CPUs (a taskset list; "":
// all) and then executes the real java. A container's launch script runs $JAVA_HOME/bin/java, and a
// job may set its containers' JAVA_HOME. So this works without changes to the NodeManager.
func (c *Cluster) JavaHome(cpus, cgroup string) (string, error) {
	home := c.javaHome(cpus, cgroup)
	script := filepath.Join(home, "bin", "java")
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := os.Stat(script); err == nil {
		return home, nil
	}
	java, err := findJava(c.cfg.Java, c.cfg.Version)
	if err != nil {
		return "", err
	}
	bind, join := "", ""
	if cgroup != "" {
		// 0 means the writing process, in any PID namespace.
		join = "echo 0 >" + filepath.Join(cgroup, "cgroup.procs") + " || exit 1\n"
	}
	if cpus != "" {
		bind = "taskset -c " + cpus + " "
	}
	if err := os.MkdirAll(filepath.Dir(script), 0o755); err != nil {
		return "", err
	}
	return home, os.WriteFile(script, []byte("#!/bin/sh\n"+join+"exec "+bind+java+" \"$@\"\n"), 0o755)
}

// findJava returns the path of the program java in home or, if home is empty, in JAVA_HOME or, if that is
// not set, on the PATH. If the given Hadoop version cannot run on that Java, findJava returns an error.
func findJava(home, version string) (string, error) {
	java, err := locateJava(home)
	if err != nil {
		return "", err
	}
	return java, checkJava(version, java, javaMajor(java))
}

// locateJava is findJava for any Java.
func locateJava(home string) (string, error) {
	home = cmp.Or(home, os.Getenv("JAVA_HOME"))
	java := filepath.Join(home, "bin", "java")
	if home == "" {
		var err error
		if java, err = exec.LookPath("java"); err != nil {
			return "", fmt.Errorf("hadoop: no java on the PATH; install a Java 17 runtime: %w", err)
		}
	}
	java, err := filepath.EvalSymlinks(java)
	if err != nil {
		return "", fmt.Errorf("hadoop: no Java in %s: %w", home, err)
	}
	return java, nil
}

// javaMajor returns the version of the Java with the program java, such as 8 or 17, from the files of its installation.
// It returns 0 for an unusual installation, whose start will show whether it works.
func javaMajor(java string) int {
	home := filepath.Join(java, "..", "..")
	if release, err := os.ReadFile(filepath.Join(home, "release")); err == nil {
		return releaseMajor(string(release))
	}
	if _, err := os.Stat(filepath.Join(home, "lib", "rt.jar")); err == nil {
		return 8 // a runtime without a JDK has no such file, and later ones have no rt.jar
	}
	return 0
}

// releaseMajor returns the version in the release file of a Java installation, or 0 if the file does not name it.
func releaseMajor(release string) (major int) {
	_, version, ok := strings.Cut(release, "JAVA_VERSION=\"")
	if !ok {
		return 0
	}
	if _, err := fmt.Sscanf(strings.TrimPrefix(version, "1."), "%d", &major); err != nil {
		return 0
	}
	return major
}

// checkJava checks the version of Java; 0 is unknown and accepted.
func checkJava(hadoop, java string, major int) error {
	oldest, newest := javaOf(hadoop)
	if major == 0 || RunsOn(hadoop, major) {
		return nil
	}
	if oldest == newest {
		return fmt.Errorf("hadoop: %s is Java %d, and Hadoop %s needs Java %d: choose another (JAVA_HOME)", java, major, hadoop, oldest)
	}
	return fmt.Errorf("hadoop: %s is Java %d, and Hadoop %s needs Java %d to %d: choose another, preferably Java 17 (JAVA_HOME)",
		java, major, hadoop, oldest, newest)
}

// hasModules reports whether the cluster's Java has modules, whose packages must be opened to Hadoop. Java 8 does not
// know the option for it, and refuses to start.
func (c *Cluster) hasModules() bool {
	java, err := locateJava(c.cfg.Java)
	return err != nil || javaMajor(java) != 8
}

// await polls a condition until it is true, a daemon dies or the context ends.
func (c *Cluster) await(ctx context.Context, what string, ready func(context.Context) error) error {
	var last error
	err := poll.Until(ctx, 100*time.Millisecond, func() (bool, error) {
		if last = ready(ctx); last == nil {
			return true, nil
		}
		return false, c.Check()
	})
	if err != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%s not ready: %w (%w); logs in %s", what, last, context.Cause(ctx), c.LogDir())
	}
	return err
}

// Check returns an error, with the last lines of the log, if a daemon has died without being
// stopped by this package.
func (c *Cluster) Check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range slices.Concat([]*process.Process{c.nn}, c.rms, c.nms, c.dns) {
		if p != nil && !p.Alive() {
			return p.Failure()
		}
	}
	return nil
}

// LiveDataNodes returns the number of live DataNodes, and whether the NameNode is in safe mode,
// according to the NameNode's JMX.
func (c *Cluster) LiveDataNodes(ctx context.Context) (live int, safeMode bool, err error) {
	var state struct {
		FSState          string
		NumLiveDataNodes int
	}
	err = Bean(ctx, c.NameNodeURL(), "Hadoop:service=NameNode,name=FSNamesystemState", &state)
	return state.NumLiveDataNodes, state.FSState != "Operational", err
}

func (c *Cluster) hdfsReady(ctx context.Context) error {
	live, safeMode, err := c.LiveDataNodes(ctx)
	if err != nil {
		return err
	}
	want := 0
	c.mu.Lock()
	for _, d := range c.dns {
		if d != nil {
			want++
		}
	}
	c.mu.Unlock()
	if live < want || safeMode {
		return fmt.Errorf("%d of %d DataNodes live, safe mode %v", live, want, safeMode)
	}
	return nil
}

func (c *Cluster) yarnReady(ctx context.Context) error {
	var doc struct {
		ClusterMetrics struct{ ActiveNodes int }
	}
	if err := c.askResourceManager(ctx, c.ResourceManagerURL()+"/ws/v1/cluster/metrics", &doc); err != nil {
		return err
	}
	if got := doc.ClusterMetrics.ActiveNodes; got < c.cfg.NodeManagers {
		return fmt.Errorf("%d of %d NodeManagers registered", got, c.cfg.NodeManagers)
	}
	return nil
}

// StopDataNode ends DataNode i with SIGTERM and waits for its end.
func (c *Cluster) StopDataNode(i int) { c.takeDataNode(i).Stop(10 * time.Second) }

// KillDataNode ends DataNode i with SIGKILL, as a crash would.
func (c *Cluster) KillDataNode(i int) { c.takeDataNode(i).Kill() }

// KillNodeManager ends NodeManager i with SIGKILL. Its containers die with it if root runs the cluster.
func (c *Cluster) KillNodeManager(i int) {
	c.mu.Lock()
	p := c.nms[i]
	c.nms[i] = nil
	c.mu.Unlock()
	p.Kill()
}

// RestartNodeManager kills NodeManager i with its containers, starts it with a changed configuration, and returns when it
// is ready. Settings and Jars of the configuration can be changed, for this and later starts of all processes.
func (c *Cluster) RestartNodeManager(ctx context.Context, i int, change func(*Config)) error {
	c.KillNodeManager(i)
	settings := map[string]string{}
	maps.Copy(settings, c.cfg.Settings)
	c.cfg.Settings = settings // the caller has the other one
	change(&c.cfg)
	name := nodeManagerName(i)
	if err := os.RemoveAll(c.confDir(name)); err != nil {
		return err
	}
	if err := errors.Join(c.writeConf(name, c.nodeManagerSite(i)), c.governFolder(name)); err != nil {
		return err
	}
	p, err := c.launchNodeManager(i)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.nms[i] = p
	c.mu.Unlock()
	return c.await(ctx, fmt.Sprintf("NodeManager %d", i), func(ctx context.Context) error {
		// Its web address is there once it has registered with the ResourceManager.
		var metrics struct{ AvailableVCores int }
		return errors.Join(Bean(ctx, c.NodeManagerURL(i), "Hadoop:service=NodeManager,name=NodeManagerMetrics", &metrics), c.yarnReady(ctx))
	})
}

func (c *Cluster) takeDataNode(i int) *process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.dns[i]
	c.dns[i] = nil
	return p
}

// StartDataNode starts DataNode i again, on its old ports and volumes, and returns when the new
// process serves its data. jvmArgs, if any, replace the configured arguments for this and later
// starts.
func (c *Cluster) StartDataNode(ctx context.Context, i int, jvmArgs ...string) error {
	if c.DataNodePID(i) != 0 {
		return fmt.Errorf("hadoop: DataNode %d is running", i)
	}
	if len(jvmArgs) > 0 {
		c.cfg.DataNodes[i].JVMArgs = jvmArgs
	}
	p, err := c.launchDataNode(i)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.dns[i] = p
	c.mu.Unlock()
	name := fmt.Sprintf("DataNode %d", i)
	// The NameNode may still count the old process as live. So wait first until the new process has
	// registered and its volumes are ready, and then ask the NameNode.
	if err := c.await(ctx, name, func(ctx context.Context) error { return c.dataNodeReady(ctx, i) }); err != nil {
		return err
	}
	return c.await(ctx, name, c.hdfsReady)
}

// dataNodeReady returns nil if every block pool service has registered and has sent a block report.
func (c *Cluster) dataNodeReady(ctx context.Context, i int) error {
	var info struct{ BPServiceActorInfo string }
	if err := Bean(ctx, c.DataNodeURL(i), "Hadoop:service=DataNode,name=DataNodeInfo", &info); err != nil {
		return err
	}
	var actors []struct{ ActorState string }
	if err := json.Unmarshal([]byte(info.BPServiceActorInfo), &actors); err != nil {
		return fmt.Errorf("DataNode JMX: block pool services %q: %w", info.BPServiceActorInfo, err)
	}
	for _, a := range actors {
		if a.ActorState != "RUNNING" {
			return fmt.Errorf("DataNode: block pool service is %s", a.ActorState)
		}
	}
	if len(actors) == 0 {
		return errors.New("DataNode: no block pool service yet")
	}
	return nil
}

// Stop ends every process of the cluster, including clients and containers, and returns when none
// is left. It may be called more than once. Logs and data stay in the run folder.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() {
		c.mu.Lock()
		apps := c.apps
		all := slices.Concat(c.rms, []*process.Process{c.nn}, c.nms, c.dns)
		c.dns = make([]*process.Process, len(c.cfg.DataNodes))
		c.nn, c.rms, c.nms = nil, nil, nil
		c.mu.Unlock()
		for _, a := range apps {
			a.client.Kill()
		}
		// The data is not needed any more, so the daemons need no orderly shutdown. They still get a
		// grace period, in which DataNodes close their files.
		var ending sync.WaitGroup
		for _, p := range all {
			ending.Go(func() { p.Stop(2 * time.Second) })
		}
		ending.Wait()
		c.stopErr = c.book.Close() // also ends the remaining processes
	})
	return c.stopErr
}
