package install

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"penstock/deploy"
)

// ourComment is the comment above text that was added to a file.
const ourComment = "Added by penstock install, which also takes it out."

// Classes in the agent's jar, and the classes of Hadoop and Spark that they replace.
const (
	taskFiles, defaultFiles = "penstock.task.GovernedLocalFileSystem", "org.apache.hadoop.fs.LocalFileSystem"
	namedHDFS, defaultHDFS  = "penstock.spark.NamedDistributedFileSystem", "org.apache.hadoop.hdfs.DistributedFileSystem"
	shuffle, defaultShuffle = "penstock.spark.GovernedShuffleDataIO", "org.apache.spark.shuffle.sort.io.LocalDiskShuffleDataIO"
)

// Defaults of mapred-site.xml's properties, the same in Hadoop 3.3 to 3.5. A property that is set
// loses its default, so the new value has to repeat it.
const (
	defaultTaskClassPath = "$HADOOP_MAPRED_HOME/share/hadoop/mapreduce/*,$HADOOP_MAPRED_HOME/share/hadoop/mapreduce/lib/*"
	defaultTaskOptions   = "-Djava.net.preferIPv4Stack=true -Dhadoop.metrics.log.level=WARN"
)

// defaultTezOptions is Tez's default of the same options, the same in Tez 0.9 and 0.10.
const defaultTezOptions = "-server -Djava.net.preferIPv4Stack=true -Dhadoop.metrics.log.level=WARN"

// taskClassPath is the class path of tasks and of the application master.
const taskClassPath = "mapreduce.application.classpath"

// With ifileReadahead, a task's merge asks the kernel by posix_fadvise for the next 4 MiB of each
// spill. This bypasses the daemon, which reads ahead itself.
const ifileReadahead = "mapreduce.ifile.readahead"

// Like ifileReadahead, these settings make the kernel read ahead and so bypass the daemon:
// blockReadahead in a DataNode, shuffleReadahead in a NodeManager, both only if libhadoop is loaded.
const (
	blockReadahead   = "dfs.datanode.readahead.bytes"
	shuffleReadahead = "mapreduce.shuffle.readahead.bytes"
)

// taskOption is the JVM option of a map or reduce task that turns on the governed file system. The
// container's launch script, a bash script on the node that runs the task, evaluates it: the option
// is empty unless the container's class path has the jar and the jar can be read at that time.
func taskOption(jar string) string {
	return fmt.Sprintf("$(case :$CLASSPATH: in *:%s:*) test ! -r %s || echo -Dpenstock.file.impl=%s;; esac)", jar, jar, taskFiles)
}

// DataNodeOption returns the option that shellprofile.d/penstock.sh adds to a DataNode's options.
// It is exported for programs that start a DataNode without Hadoop's scripts.
func DataNodeOption(jar, socket string) string { return "-javaagent:" + jar + "=socket=" + socket }

// NodeManagerOption is DataNodeOption for a NodeManager.
func NodeManagerOption(jar, socket string) string {
	return DataNodeOption(jar, socket) + ",role=nodemanager"
}

// WorkerOption is DataNodeOption for a standalone Spark's Worker with the shuffle service.
func WorkerOption(jar, socket string) string {
	return DataNodeOption(jar, socket) + ",role=worker"
}

func executorOption(jar, socket string) string {
	return DataNodeOption(jar, socket) + ",role=executor"
}

// target is a file to prepare.
type target struct {
	path   string // relative to the folder
	format format
	wants  []want
	// whole is the file's text or, with append, the lines to append. Lines that the file has already are
	// not appended.
	whole  string
	append bool
	// behind reports whether the file is read only by YARN or by Tez's clients, after the *-site.xml, so that
	// this file overrides them.
	behind bool
	// optional, if not empty, is the note to show if the file is missing; the file is then not
	// made.
	optional string
	// note is shown to the operator when the file is changed.
	note string
	// restart names the services that read the file only when they start.
	restart string
}

const restartDaemons = "the DataNode and the NodeManager of each machine that uses this folder (the agent is loaded when the JVM starts)"

func hadoopTargets(o Options) []target {
	option := taskOption(o.AgentJar)
	targets := []target{
		{path: "shellprofile.d/penstock.sh", format: plainText, whole: shellProfile(o), restart: restartDaemons},
		{path: "mapred-site.xml", format: hadoopXML, wants: []want{
			{key: "fs.file.impl", set: "${penstock.file.impl}", byDefault: defaultFiles},
			{key: "penstock.file.impl", set: defaultFiles, byDefault: defaultFiles},
			{key: "penstock.socket", set: o.Socket},
			{key: ifileReadahead, set: "false", byDefault: "true"},
			{key: shuffleReadahead, set: "0", byDefault: "4194304"},
			{key: taskClassPath, add: o.AgentJar, sep: ",", fallback: defaultTaskClassPath},
			{key: "mapreduce.admin.map.child.java.opts", add: option, sep: " ", fallback: defaultTaskOptions},
			{key: "mapreduce.admin.reduce.child.java.opts", add: option, sep: " ", fallback: defaultTaskOptions},
		}, restart: "nothing for jobs, which use mapred-site.xml from now on; the NodeManagers for its " + shuffleReadahead},
		{path: "hdfs-site.xml", format: hadoopXML, wants: []want{
			{key: blockReadahead, set: "0", byDefault: "4194304"},
		}, restart: restartDaemons},
	}
	if o.DiskBandwidth != "" && o.DiskBandwidth != "0" {
		targets = append(targets, bandwidthTargets(o.DiskBandwidth)...)
	}
	return targets
}

const (
	bandwidthResource  = "disk-bandwidth"
	resourceTypes      = "yarn.resource-types"
	resourceCalculator = "yarn.scheduler.capacity.resource-calculator"
	defaultCalculator  = "org.apache.hadoop.yarn.util.resource.DefaultResourceCalculator"
	dominantCalculator = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
	nodeBandwidth      = "yarn.nodemanager.resource-type." + bandwidthResource
	schedulerClass     = "yarn.resourcemanager.scheduler.class"
	// schedulerStore is the key of the store of the CapacityScheduler's settings: "file" is
	// capacity-scheduler.xml, and "memory" is filled from that file at each start of the
	// ResourceManager.
	schedulerStore = "yarn.scheduler.configuration.store.class"
	// restartYARN names the order, because a ResourceManager ignores unknown resources of a node
	// that registers.
	restartYARN = "the ResourceManager, then the NodeManagers, for " + bandwidthResource
)

// bandwidthTargets returns the files that make bandwidth a resource of YARN. The calculator is set,
// too, because the ResourceManager does not start with a third resource and the default calculator,
// which counts only memory.
func bandwidthTargets(bandwidth string) []target {
	return []target{
		{path: "resource-types.xml", format: hadoopXML, behind: true, wants: []want{
			{key: resourceTypes, add: bandwidthResource, sep: ","},
			{key: resourceTypes + "." + bandwidthResource + ".units", set: "M"},
		}, restart: restartYARN},
		{path: "node-resources.xml", format: hadoopXML, behind: true, wants: []want{
			{key: nodeBandwidth, set: bandwidth, byDefault: strings.TrimSuffix(bandwidth, "M")},
		}, restart: restartYARN},
		{path: "capacity-scheduler.xml", format: hadoopXML, behind: true, wants: []want{
			{key: resourceCalculator, set: dominantCalculator, byDefault: defaultCalculator},
		}, restart: restartYARN,
			note: "with DominantResourceCalculator, queues' shares and limits apply to CPU as well, not only to memory",
			optional: "is not there, and is not made: if the ResourceManager has its own, it must set " + resourceCalculator + " = " + dominantCalculator +
				", or the ResourceManager does not start with " + bandwidthResource},
	}
}

// sparkEnvironment returns the lines for spark-env.sh: the jar on Spark's class path, and the agent in a standalone
// cluster's Worker and in a separate shuffle service. A line changes nothing if the jar is missing, or if the option has
// an agent of Penstock already: a JVM must not have two.
func sparkEnvironment(o Options) string {
	lines := []string{fmt.Sprintf("export SPARK_DIST_CLASSPATH=\"${SPARK_DIST_CLASSPATH:+${SPARK_DIST_CLASSPATH}:}%s\"", o.AgentJar)}
	for _, variable := range []string{"SPARK_WORKER_OPTS", "SPARK_SHUFFLE_OPTS"} {
		lines = append(lines, fmt.Sprintf(`case "${%[1]s:-}" in *-javaagent:%[2]s=*|*-javaagent:*penstock-agent*) ;; *) if [ -f %[2]s ] && [ -r %[2]s ]; then export %[1]s="${%[1]s:+${%[1]s} }%[3]s"; fi ;; esac`,
			variable, o.AgentJar, WorkerOption(o.AgentJar, o.Socket)))
	}
	return strings.Join(lines, "\n")
}

func sparkTargets(o Options) []target {
	on := "-Dpenstock.hdfs.impl=" + namedHDFS
	// Spark inserts the application's id when it starts the executor. A standalone cluster passes
	// it in no other way; on YARN the container's own name has priority.
	const application = "-Dpenstock.application={{APP_ID}}"
	return []target{
		{path: "spark-env.sh", format: plainText, append: true,
			whole:   sparkEnvironment(o),
			restart: "Spark's standalone Workers, a separate shuffle service, its Thrift and Connect servers, if you have them"},
		{path: "spark-defaults.conf", format: sparkProperties, wants: []want{
			{key: "spark.hadoop.fs.hdfs.impl", set: "${penstock.hdfs.impl}", byDefault: defaultHDFS},
			{key: "spark.hadoop.penstock.hdfs.impl", set: defaultHDFS, byDefault: defaultHDFS},
			{key: "spark.hadoop.penstock.socket", set: o.Socket},
			{key: "spark.shuffle.sort.io.plugin.class", set: shuffle, byDefault: defaultShuffle},
			{key: "spark.executor.extraClassPath", add: o.AgentJar, sep: ":"},
			{key: "spark.driver.extraClassPath", add: o.AgentJar, sep: ":"},
			{key: "spark.executor.defaultJavaOptions", add: executorOption(o.AgentJar, o.Socket) + " " + application + " " + on, sep: " ", also: "spark.executor.extraJavaOptions"},
			{key: "spark.driver.defaultJavaOptions", add: on, sep: " "},
		}, restart: "nothing for spark-defaults.conf: applications submitted from now on use it"},
	}
}

// tezTargets returns the file of Tez's clients. Tez reads it after the files of Hadoop, which it overrides. Tez replaces variables
// in the settings of an application when it submits the application, but not in the settings that begin with "fs." of a graph's
// edges, from which tasks make their local file system.
func tezTargets(o Options) []target {
	return []target{
		{path: "tez-site.xml", format: hadoopXML, behind: true, wants: []want{
			{key: "fs.file.impl", set: "${penstock.file.impl}", byDefault: defaultFiles},
			{key: "penstock.file.impl", set: defaultFiles, byDefault: defaultFiles},
			{key: "penstock.socket", set: o.Socket},
			{key: "tez.runtime.ifile.readahead", set: "false", byDefault: "true"},
			{key: "tez.cluster.additional.classpath.prefix", add: o.AgentJar, sep: ":"},
			{key: "tez.task.launch.cluster-default.cmd-opts", add: taskOption(o.AgentJar), sep: " ", fallback: defaultTezOptions},
		}, restart: "the services that submit to Tez, such as HiveServer2"},
	}
}

// kindOf returns the kind of the folders in which penstock install changes the file, or an empty string.
func kindOf(path string) string {
	all := Options{DiskBandwidth: "1M"}
	for kind, targets := range map[string][]target{"Hadoop": hadoopTargets(all), "Spark": sparkTargets(all), "Tez": tezTargets(all)} {
		if slices.ContainsFunc(targets, func(t target) bool { return t.path == path }) {
			return kind
		}
	}
	return ""
}

// shellProfile returns the file in deploy/ with the paths and the oldest Java inserted.
func shellProfile(o Options) string {
	return strings.NewReplacer(
		"{PENSTOCK_AGENT_JAR:-/opt/penstock/penstock-agent.jar}", "{PENSTOCK_AGENT_JAR:-"+o.AgentJar+"}",
		"{PENSTOCK_SOCKET:-/run/penstock/agent.sock}", "{PENSTOCK_SOCKET:-"+o.Socket+"}",
		"{PENSTOCK_LEAST_JAVA:-16}", fmt.Sprintf("{PENSTOCK_LEAST_JAVA:-%d}", cmp.Or(o.LeastJava, unixSocketsJava)),
	).Replace(deploy.ShellProfile)
}

// otherSites are the other files that a task's JVM reads. mapred-site.xml overrides the files that
// are read before it, unless their property is final; yarn-site.xml is read after it.
var otherSites = []struct {
	name string
	wins bool
}{{"core-site.xml", false}, {"hdfs-site.xml", false}, {"yarn-site.xml", true}}

// bandwidthOf returns the bandwidth that the targets offer to YARN, or an empty string.
func bandwidthOf(targets []target) string {
	for _, t := range targets {
		for _, w := range t.wants {
			if w.key == nodeBandwidth {
				return w.set
			}
		}
	}
	return ""
}

// siteOf reads a file; a missing file counts as empty.
func siteOf(name string) (*document, error) {
	f, err := readFile(name)
	if err != nil {
		return nil, err
	}
	doc, err := parseXML(f.text, includes(filepath.Dir(f.path)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return doc, nil
}

// inherit looks for lists in other files that the target's list would hide. It makes their items
// the beginning of the target's list and records their file.
func (t target) inherit(dir string) error {
	if !t.behind {
		return nil
	}
	for _, site := range otherSites {
		doc, err := siteOf(filepath.Join(dir, site.name))
		if err != nil {
			return err
		}
		for i, w := range t.wants {
			if e, ok := doc.effective(w.key); ok && w.add != "" {
				others := slices.DeleteFunc(strings.Split(e.value, w.sep), func(s string) bool {
					s = strings.TrimSpace(s)
					return s == "" || s == w.add
				})
				t.wants[i].fallback, t.wants[i].hides = strings.TrimSpace(strings.Join(others, w.sep)), site.name
			}
		}
	}
	return nil
}

// elsewhere finds definitions of the same properties in the other files of Hadoop's folder, for a target in a folder of that kind.
// For Spark, whose own settings override all files, it looks for the properties that Spark passes to Hadoop.
func elsewhere(dir string, t target, kind string) ([]conflict, error) {
	var found []conflict
	spark := kind == "Spark"
	for _, site := range otherSites {
		name := filepath.Join(dir, site.name)
		doc, err := siteOf(name)
		if err != nil {
			return nil, err
		}
		for _, w := range t.wants {
			key := w.key
			if spark {
				key, _ = strings.CutPrefix(key, "spark.hadoop.")
			}
			e, ok := doc.effective(key)
			hard := !spark && (e.final || site.wins && !t.behind)
			isDefault := w.byDefault != "" && strings.TrimSpace(e.value) == w.byDefault
			if !ok || e.value == w.set || isDefault && !hard {
				continue
			}
			if t.behind && w.add != "" && (w.has(e.value) || !hard && kind != "Tez") {
				continue // see inherit, which does not read the files of another folder
			}
			what := fmt.Sprintf("%s sets %s to %q", name, e.key, e.value)
			if hard {
				what += ", which would win: remove it there"
			}
			found = append(found, conflict{what, hard})
		}
	}
	return found, nil
}
