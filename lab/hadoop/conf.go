package hadoop

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	testports "penstock/lab/ports"
	"penstock/ops/install"
)

// ports are the ports of the daemons. They are fixed for the cluster's life, so a restarted daemon
// has the same address.
type ports struct {
	nnRPC, nnHTTP int
	rm            []rmPorts
	dn            []dnPorts
	nm            []nmPorts
}

type rmPorts struct{ client, scheduler, tracker, admin, http int }

type dnPorts struct{ data, ipc, http int }
type nmPorts struct{ rpc, localizer, http, shuffle int }

// pickPorts chooses free ports outside the range of ports for outgoing connections.
func pickPorts(resourceManagers, dataNodes, nodeManagers int) (p ports, err error) {
	free, err := testports.Free(2 + 5*resourceManagers + 3*dataNodes + 4*nodeManagers)
	if err != nil {
		return p, err
	}
	next := func() (port int) {
		port, free = free[0], free[1:]
		return port
	}
	p = ports{nnRPC: next(), nnHTTP: next()}
	for range resourceManagers {
		p.rm = append(p.rm, rmPorts{next(), next(), next(), next(), next()})
	}
	for range dataNodes {
		p.dn = append(p.dn, dnPorts{next(), next(), next()})
	}
	for range nodeManagers {
		p.nm = append(p.nm, nmPorts{next(), next(), next(), next()})
	}
	return p, nil
}

// containerMB is the size in MB of every container, both of an ApplicationMaster and of a task. The
// scheduler counts only memory, so the size determines how many containers run at a time.
const containerMB = 512

type properties map[string]string

const historyDir = "/staging/done_intermediate"

// site is the configuration that all daemons and clients share. Each *-site.xml file contains
// nearly all of the properties, because Hadoop accepts a property in any of these files.
func (c *Cluster) site() properties {
	cfg, p := &c.cfg, &c.ports
	queueMB := containerMB * (1 + cfg.TaskSlots)
	site := properties{
		"fs.defaultFS":   c.DefaultFS(),
		"hadoop.tmp.dir": filepath.Join(cfg.RunDir, "tmp", "hadoop"),
		// The NameNode's metadata is on the machine's own disk, because a slow modelled disk must
		// not slow down the NameNode.
		"dfs.namenode.name.dir":                                        "file://" + filepath.Join(cfg.RunDir, "data", "nn"),
		"dfs.namenode.rpc-address":                                     cfg.at(p.nnRPC),
		"dfs.namenode.http-address":                                    cfg.at(p.nnHTTP),
		"dfs.namenode.handler.count":                                   "8",
		"dfs.namenode.fs-limits.min-block-size":                        "4096",
		"dfs.namenode.safemode.extension":                              "0",
		"dfs.namenode.safemode.min.datanodes":                          strconv.Itoa(len(cfg.DataNodes)),
		"dfs.namenode.heartbeat.recheck-interval":                      "2000",
		"dfs.namenode.redundancy.interval.seconds":                     "1s",
		"dfs.namenode.acls.enabled":                                    "false",
		"dfs.permissions.enabled":                                      "false",
		"dfs.replication":                                              strconv.Itoa(cfg.Replication),
		"dfs.blocksize":                                                strconv.FormatInt(cfg.BlockSize, 10),
		"dfs.webhdfs.enabled":                                          "true",
		"dfs.heartbeat.interval":                                       "1",
		"dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "50",

		// All DataNodes and clients have the same address, so "the local DataNode" has no meaning.
		// New blocks go to the DataNode with more free space, which keeps all disks equally busy; a
		// random choice would not.
		"dfs.block.replicator.classname":                                                         "org.apache.hadoop.hdfs.server.blockmanagement.AvailableSpaceBlockPlacementPolicy",
		"dfs.namenode.block-placement-policy.default.prefer-local-node":                          "false",
		"dfs.namenode.available-space-block-placement-policy.balanced-space-preference-fraction": "1.0",
		"dfs.namenode.available-space-block-placement-policy.balanced-space-tolerance":           "0",
		"dfs.namenode.datanode.registration.ip-hostname-check":                                   "false",
		"dfs.namenode.replication.considerLoad":                                                  "false",
		"dfs.datanode.hostname":                                                                  "127.0.0.1",
		"dfs.datanode.failed.volumes.tolerated":                                                  "0",
		"dfs.datanode.du.reserved":                                                               "0",
		// Used space comes from statfs, because counting files with du would read the modelled
		// disk.
		"fs.getspaceused.classname":    "org.apache.hadoop.fs.DFCachingGetSpaceUsed",
		"fs.du.interval":               "1000",
		"fs.getspaceused.jitterMillis": "0",
		// These settings prevent I/O that belongs to no application, and I/O that package judge does not
		// see.
		"dfs.datanode.scan.period.hours":        "-1",
		"dfs.datanode.directoryscan.interval":   "-1",
		"dfs.datanode.readahead.bytes":          "0",
		"dfs.datanode.drop.cache.behind.reads":  "false",
		"dfs.datanode.drop.cache.behind.writes": "false",
		"dfs.datanode.sync.behind.writes":       "false",
		"io.native.lib.available":               "false",

		"yarn.resourcemanager.scheduler.class":                    "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler",
		"yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
		"yarn.resourcemanager.am.max-attempts":                    "1",
		"yarn.scheduler.minimum-allocation-mb":                    strconv.Itoa(containerMB),
		"yarn.scheduler.maximum-allocation-mb":                    strconv.Itoa(queueMB),
		"yarn.nodemanager.hostname":                               "127.0.0.1",
		"yarn.nodemanager.resource.memory-mb":                     strconv.Itoa(2 * queueMB),
		"yarn.nodemanager.resource.cpu-vcores":                    "64",
		"yarn.nodemanager.vmem-check-enabled":                     "false",
		"yarn.nodemanager.pmem-check-enabled":                     "false",
		"yarn.nodemanager.container-monitor.enabled":              "false",
		"yarn.nodemanager.disk-health-checker.enable":             "false",
		"yarn.nodemanager.local-dirs":                             strings.Join(cfg.LocalDirs, ","),
		"yarn.nodemanager.aux-services":                           "mapreduce_shuffle",
		"yarn.nodemanager.aux-services.mapreduce_shuffle.class":   "org.apache.hadoop.mapred.ShuffleHandler",
		"yarn.nodemanager.admin-env":                              "MALLOC_ARENA_MAX=2," + c.book.Mark(),
		"yarn.nodemanager.delete.thread-count":                    "1",
		"yarn.nodemanager.sleep-delay-before-sigkill.ms":          "100",
		"yarn.dispatcher.exit-on-error":                           "true",
		"yarn.node-attribute.fs-store.root-dir":                   "file://" + filepath.Join(cfg.RunDir, "data", "node-attributes"),
		"yarn.node-labels.fs-store.root-dir":                      "file://" + filepath.Join(cfg.RunDir, "data", "node-labels"),
		"yarn.timeline-service.enabled":                           "false",
		"yarn.application.classpath":                              c.confDir("client") + "," + cfg.jars(","),

		"mapreduce.framework.name":                   "yarn",
		"mapreduce.application.classpath":            cfg.jars(","),
		"mapreduce.admin.user.env":                   "",
		"yarn.app.mapreduce.am.admin.user.env":       "",
		"yarn.app.mapreduce.am.staging-dir":          "/staging",
		"yarn.app.mapreduce.am.resource.mb":          strconv.Itoa(containerMB),
		"yarn.app.mapreduce.am.command-opts":         c.taskOpts(200) + " " + quick,
		"mapreduce.am.max-attempts":                  "1",
		"mapreduce.map.memory.mb":                    strconv.Itoa(containerMB),
		"mapreduce.reduce.memory.mb":                 strconv.Itoa(containerMB),
		"mapreduce.map.java.opts":                    c.taskOpts(cfg.TaskHeapMB),
		"mapreduce.reduce.java.opts":                 c.taskOpts(cfg.TaskHeapMB),
		"mapreduce.map.speculative":                  "false",
		"mapreduce.reduce.speculative":               "false",
		"mapreduce.client.submit.file.replication":   "1",
		"mapreduce.job.ubertask.enable":              "false",
		"mapreduce.jobhistory.intermediate-done-dir": historyDir,
		"mapreduce.jobhistory.done-dir":              "/staging/done",
		// All polling intervals are short, because the gaps between a job's phases must be short
		// compared with the measured I/O.
		"yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms":    "200",
		"mapreduce.client.progressmonitor.pollinterval":            "500",
		"mapreduce.client.completion.pollinterval":                 "500",
		"yarn.app.mapreduce.client.job.retry-interval":             "200",
		"yarn.client.application-client-protocol.poll-interval-ms": "100",
		"mapreduce.task.exit.timeout.check-interval-ms":            "1000",
		"mapreduce.job.reduce.slowstart.completedmaps":             "1.0",
		// A task that waits for a slow disk reports no progress for minutes.
		"mapreduce.task.timeout": "1800000",
		// Tasks report their progress once in a hundredth of that time, unless this is set (every 6 s with Hadoop's own time-out).
		// The jobs here are shorter than on a real cluster, so reports come sooner too.
		"mapreduce.task.progress-report.interval": "1000",

		"yarn.scheduler.capacity.root.queues":                                     QueueProtected + "," + QueueAggressor,
		"yarn.scheduler.capacity.resource-calculator":                             "org.apache.hadoop.yarn.util.resource.DefaultResourceCalculator",
		"yarn.scheduler.capacity.maximum-am-resource-percent":                     "0.9",
		"yarn.scheduler.capacity.node-locality-delay":                             "-1",
		"yarn.scheduler.capacity.per-node-heartbeat.multiple-assignments-enabled": "true",
	}
	if cfg.NodeManagers > 1 {
		perNode := (2*queueMB/containerMB + cfg.NodeManagers - 1) / cfg.NodeManagers * containerMB
		site["yarn.nodemanager.resource.memory-mb"] = strconv.Itoa(perNode)
	}
	for _, q := range []string{QueueProtected, QueueAggressor} {
		prefix := "yarn.scheduler.capacity.root." + q + "."
		site[prefix+"capacity"] = "50"
		site[prefix+"maximum-capacity"] = "50"
		site[prefix+"user-limit-factor"] = "1"
		site[prefix+"state"] = "RUNNING"
	}
	maps.Copy(site, c.resourceManagerSettings())
	maps.Copy(site, cfg.queueSettings())
	maps.Copy(site, cfg.nodeSettings())
	maps.Copy(site, cfg.kerberosSettings())
	maps.Copy(site, cfg.Settings)
	return site
}

// dataNodeSite returns the properties that are specific to DataNode i.
func (c *Cluster) dataNodeSite(i int) properties {
	p := c.ports.dn[i]
	site := properties{
		"dfs.datanode.data.dir":     dataDirs(c.cfg.DataNodes[i].Volumes),
		"dfs.datanode.address":      c.cfg.dataNodeAt(i, p.data),
		"dfs.datanode.ipc.address":  c.cfg.dataNodeAt(i, p.ipc),
		"dfs.datanode.http.address": c.cfg.nodeAt(i, p.http),
		"hadoop.tmp.dir":            filepath.Join(c.cfg.RunDir, "tmp", fmt.Sprintf("dn%d", i)),
	}
	maps.Copy(site, c.cfg.nodeName("dfs.datanode.hostname", i))
	return site
}

// ConfigureDataNode sets additional properties of DataNode i for its future starts; nil removes
// them.
func (c *Cluster) ConfigureDataNode(i int, settings map[string]string) error {
	site := c.dataNodeSite(i)
	maps.Copy(site, settings)
	return c.writeConf(fmt.Sprintf("dn%d", i), site)
}

// nodeManagerSite returns the properties that are specific to NodeManager i.
func (c *Cluster) nodeManagerSite(i int) properties {
	p := c.ports.nm[i]
	site := properties{
		"yarn.nodemanager.local-dirs":        c.cfg.localDirs(i),
		"yarn.nodemanager.log-dirs":          filepath.Join(c.LogDir(), "containers", nodeManagerName(i)),
		"yarn.nodemanager.address":           c.cfg.nodeAt(i, p.rpc),
		"yarn.nodemanager.localizer.address": c.cfg.nodeAt(i, p.localizer),
		"yarn.nodemanager.webapp.address":    c.cfg.nodeAt(i, p.http),
		"mapreduce.shuffle.port":             strconv.Itoa(p.shuffle),
		"hadoop.tmp.dir":                     filepath.Join(c.cfg.RunDir, "tmp", nodeManagerName(i)),
	}
	maps.Copy(site, c.cfg.nodeName("yarn.nodemanager.hostname", i))
	return site
}

// jars returns the class path of Hadoop's jars and of the additional ones.
func (cfg *Config) jars(separator string) string {
	return strings.Join(append([]string{cfg.Lib + "/*"}, cfg.Jars...), separator)
}

func (c *Cluster) confDir(name string) string { return filepath.Join(c.cfg.RunDir, "conf", name) }

// writeConf writes the configuration folder of a daemon or of the clients.
func (c *Cluster) writeConf(name string, own properties) error {
	dir := c.confDir(name)
	// The HDFS jars lack the folders of the web pages, which the daemons require. The servlets
	// (JMX, WebHDFS) need no files in these folders.
	for _, app := range []string{"hdfs", "datanode", "static"} {
		if err := os.MkdirAll(filepath.Join(dir, "webapps", app), 0o755); err != nil {
			return err
		}
	}
	site := c.site()
	for k, v := range own {
		if _, set := c.cfg.Settings[k]; !set {
			site[k] = v
		}
	}
	all := SiteXML(site)
	// A property that penstock install changes must be only in the file that it belongs to.
	maps.DeleteFunc(site, func(k, _ string) bool { return slices.Contains(tasksOnly, k) })
	rest := SiteXML(site)
	for file, text := range map[string][]byte{"core-site.xml": rest, "hdfs-site.xml": rest, "yarn-site.xml": rest,
		"mapred-site.xml": all, "capacity-scheduler.xml": rest} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "log4j.properties"), []byte(log4j), 0o644)
}

// tasksOnly are the properties that only mapred-site.xml contains.
var tasksOnly = []string{"mapreduce.application.classpath"}

// govern prepares the configuration of tasks, and of the clients that submit them.
func (c *Cluster) govern() error {
	err := c.governFolder("client")
	for i := range c.cfg.NodeManagers {
		err = errors.Join(err, c.governFolder(nodeManagerName(i)))
	}
	return err
}

func (c *Cluster) governFolder(name string) error {
	g := c.cfg.Governed
	if g == nil {
		return nil
	}
	r, err := install.Apply(install.Options{HadoopConf: c.confDir(name), AgentJar: g.AgentJar, Socket: g.Socket})
	if err != nil {
		return fmt.Errorf("prepare the configuration: %w: %s", err, strings.Join(r.Conflicts, "; "))
	}
	return nil
}

// SiteXML returns the text of a configuration file with the given properties, sorted by name.
func SiteXML(p map[string]string) []byte {
	var b bytes.Buffer
	b.WriteString("<?xml version=\"1.0\"?>\n<configuration>\n")
	for _, k := range slices.Sorted(maps.Keys(p)) {
		b.WriteString("<property><name>")
		xml.EscapeText(&b, []byte(k))
		b.WriteString("</name><value>")
		xml.EscapeText(&b, []byte(p[k]))
		b.WriteString("</value></property>\n")
	}
	b.WriteString("</configuration>\n")
	return b.Bytes()
}

const log4j = `log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %-5p %c{1} [%t]: %m%n
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
log4j.logger.BlockStateChange=WARN
log4j.logger.org.apache.hadoop.hdfs.server.datanode.DataNode.clienttrace=WARN
`

// jvmOpts returns the options of every JVM of the cluster: among others, the options that Hadoop
// needs on Java 17, a small heap, and options that keep all files inside the run folder.
func (c *Cluster) jvmOpts(heapMB int, more ...string) []string {
	opts := []string{
		"-Xmx" + strconv.Itoa(heapMB) + "m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto",
		"-Djava.io.tmpdir=" + filepath.Join(c.cfg.RunDir, "tmp"),
		"-Djava.net.preferIPv4Stack=true",
	}
	opts = append(opts, c.KerberosOptions()...)
	if len(c.cfg.Nodes) > 0 {
		opts = append(opts, "-Djdk.net.hosts.file="+c.hostsFile())
	}
	if c.hasModules() {
		for _, p := range []string{"java.lang", "java.util", "java.io", "java.nio", "java.net", "sun.nio.ch", "java.util.concurrent"} {
			opts = append(opts, "--add-opens=java.base/"+p+"=ALL-UNNAMED")
		}
	}
	return append(opts, more...)
}

// quick limits a JVM to its first compiler. A JVM that runs for seconds, or does little, spends
// half of its CPU time on optimised code that it does not need. On two CPUs the measured job would
// have to wait for the compiler. DataNodes and map tasks, which process the data, keep both
// compilers.
const quick = "-XX:TieredStopAtLevel=1"

// taskOpts returns jvmOpts for containers, without the temporary directory, because the NodeManager
// sets that for each container.
func (c *Cluster) taskOpts(heapMB int) string {
	opts := slices.DeleteFunc(c.jvmOpts(heapMB), func(o string) bool { return strings.HasPrefix(o, "-Djava.io.tmpdir") })
	return strings.Join(opts, " ")
}

// TaskOptions returns the JVM options of a container with a heap of that size in MiB.
func (c *Cluster) TaskOptions(heapMB int) string { return c.taskOpts(heapMB) }
