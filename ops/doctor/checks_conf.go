package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"penstock/broker/kerberos"
)

// Checks of the folders that penstock install has prepared, and of the NodeManager. HDFS is
// governed without these folders, so the checks only warn.

// checkReadahead finds a DataNode that reads ahead of its clients by posix_fadvise.
func checkReadahead(f *Facts) []Result {
	const key = "dfs.datanode.readahead.bytes"
	d := f.DataNode
	value := d.Conf[key]
	switch {
	case d.Err != nil || d.ConfErr != nil:
		return nil
	case value == "" || value == "0":
		return good("the DataNode does not read ahead itself")
	case d.NativeErr == nil && !d.Native:
		return good("%s is %s, which has no effect without Hadoop's native library", key, value)
	}
	found := key + " is " + value
	if d.NativeErr != nil {
		found += "; it is unknown whether Hadoop's native library is loaded: " + d.NativeErr.Error()
	}
	return bad(Warn, found, "with the native library, the DataNode makes the kernel read this many bytes ahead of each reader, which bypasses Penstock's schedule",
		"run penstock install, or set it to 0 in hdfs-site.xml, and restart the DataNode; the daemon stages ahead in each application's turn")
}

func checkInstalled(f *Facts) (results []Result) {
	const again = "run penstock install --apply again, and restart what it names"
	for _, folder := range f.Folders {
		if folder.Err != nil {
			results = append(results, bad(Warn, folder.Path+": "+folder.Err.Error(), "it is unknown whether the installed settings are in force",
				"run the doctor as root, or name the folder with --hadoop-conf, --spark-conf or --tez-conf")...)
			continue
		}
		i := folder.Found
		if !i.Prepared && folder.Asked {
			results = append(results, bad(Warn, i.Folder+" was not prepared by penstock install",
				"unless it was prepared in another way, programs that use it are not governed", "run penstock install: it shows the settings that are missing")...)
		}
		if !i.Prepared {
			continue
		}
		for _, wrong := range i.Wrong {
			results = append(results, bad(Warn, wrong, "some of the installed settings are not in force, so some I/O is not governed", again)...)
		}
		switch {
		case f.Status != nil && i.Socket != "" && i.Socket != f.Status.Socket:
			results = append(results, bad(Warn, fmt.Sprintf("%s names the socket %s, the daemon has %s", i.Folder, i.Socket, f.Status.Socket),
				"programs that use the folder connect to another daemon, or to no daemon", "prepare it again with --socket, or set \"socket\" in the daemon's settings")...)
		case len(i.Wrong) == 0:
			results = append(results, good("%s is as penstock install left it", i.Folder)...)
		}
	}
	if len(results) == 0 {
		return good("no folder prepared by penstock install was found; if there is one elsewhere, name it with --hadoop-conf, --spark-conf or --tez-conf")
	}
	return results
}

// prepared reports whether a folder of Hadoop, Spark or Tez was prepared on this machine.
func (f *Facts) prepared() bool {
	return slices.ContainsFunc(f.Folders, func(folder Folder) bool { return folder.Found != nil && folder.Found.Prepared })
}

// checkExecutors finds jars without which Spark's executors do not start. A JVM ends if it cannot open
// the file of a -javaagent, before any code of Penstock or Spark runs.
func checkExecutors(f *Facts) (results []Result) {
	const meaning = "a JVM does not start without the file of its -javaagent: Spark's executors fail on this machine, and applications that lose too many of them end"
	const remedy = "put the jar there, readable by all users, before applications use these settings; or penstock install --remove, where Spark's folder is"
	for _, jar := range f.ExecutorJars {
		switch {
		case jar.Problem != "":
			results = append(results, bad(Fail, jar.Problem+" (named by "+jar.For+")", meaning, remedy)...)
		case jar.Closed != "":
			results = append(results, bad(Warn, fmt.Sprintf("not every user may read %s, and so %s (named by %s)", jar.Closed, jar.Path, jar.For),
				meaning+", if they run as such a user", remedy)...)
		default:
			results = append(results, good("%s is there for executors", jar.Path)...)
		}
	}
	if len(results) == 0 {
		return good("no folder of Spark that was prepared is here; if executors run here, name their jar with --executor-jar")
	}
	return results
}

// leftOut describes what an agent does not govern although it is woven.
func (a *Agent) leftOut() string {
	return fmt.Sprintf("woven into %d methods, but left out: %s", len(a.WovenMethods), strings.Join(a.LeftOut, "; "))
}

func checkNodeManager(f *Facts) []Result {
	n := f.NodeManager
	const ungoverned = "the data that reducers fetch from this node is not governed, and containers are not known by name"
	const option = "prepare Hadoop's configuration folder with penstock install and restart the NodeManager"
	switch {
	case n.Err != nil && (n.Asked || errors.As(n.Err, new(*kerberos.Error))):
		return bad(Warn, n.Err.Error(), "it is unknown whether an agent is in the NodeManager",
			"name its web address with --nodemanager (http://HOST:PORT, yarn.nodemanager.webapp.address, or https://HOST:PORT, yarn.nodemanager.webapp.https.address)"+secured)
	case n.Err != nil:
		return good("no NodeManager answers at %s; if there is one elsewhere, name it with --nodemanager", n.URL)
	case n.Agent == nil && (f.prepared() || n.Asked):
		return bad(Warn, "the NodeManager has no agent (no MBean penstock:type=Agent)", ungoverned, option)
	case n.Agent == nil:
		return good("%s answers and has no agent; nothing was prepared for one", n.URL)
	case n.Agent.State != "woven":
		found := "the agent does nothing, its state is " + n.Agent.State
		if len(n.Agent.Missing) > 0 {
			found += ": " + strings.Join(n.Agent.Missing, ", ")
		}
		return bad(Warn, found, ungoverned, "use a supported Hadoop and a JVM of Java 16 or later (from 8 on with \"loopback\" in the daemon's settings); the agent's messages are in the NodeManager's .out file")
	case !n.Agent.Connected:
		return bad(Warn, "the agent is woven and not connected to a daemon", ungoverned, "the daemon's log shows which users it refuses: \"users\" has to name the NodeManager's user")
	case f.Status != nil && n.PID != 0 && !f.connectedPID(n.PID):
		return bad(Warn, fmt.Sprintf("the agent of process %d is connected, but not to this daemon", n.PID), "another daemon governs this NodeManager",
			"compare socket= of the agent with \"socket\" of the daemon's settings")
	case len(n.Agent.LeftOut) > 0:
		return bad(Warn, n.Agent.leftOut(), "this part is not governed, all other parts are", "use a supported Hadoop")
	}
	return good("woven into %d methods and connected, process %d", len(n.Agent.WovenMethods), n.PID)
}

// checkWorker finds standalone Workers of Spark, and shuffle services in processes of their own, that no agent governs. Their agent
// connects when the service begins to listen, so an agent that has not connected is right in a Worker without the service.
func checkWorker(f *Facts) (results []Result) {
	const ungoverned = "the shuffle files that this process sends are not governed"
	for _, w := range f.Workers {
		name := fmt.Sprintf("Spark's Worker (process %d)", w.PID)
		if w.Service {
			name = fmt.Sprintf("Spark's shuffle service (process %d)", w.PID)
		}
		connected := f.Status != nil && f.connectedPID(w.PID)
		switch {
		case connected:
			results = append(results, good("the agent in %s is connected", name)...)
		case !w.HasAgent && w.Serves:
			results = append(results, bad(Warn, name+" has no agent", ungoverned, "prepare Spark's configuration folder with penstock install, and restart the process")...)
		case !w.HasAgent:
			results = append(results, good("%s has no agent; it needs one if spark.shuffle.service.enabled is true (penstock install writes the option)", name)...)
		case f.Status == nil:
			results = append(results, good("%s has an agent; it is unknown whether it is connected, because the daemon does not answer", name)...)
		case w.Serves:
			results = append(results, bad(Warn, "the agent in "+name+" is not connected to this daemon", ungoverned,
				"\"users\" in the daemon's settings must name the process's user, and \"local_dirs\" (if set) its local directories; the agent's messages are in the process's log")...)
		default:
			results = append(results, good("%s has an agent that is not connected. This is correct unless spark.shuffle.service.enabled is true. If it is, \"users\" of the daemon's settings must name the process's user", name)...)
		}
	}
	if len(results) == 0 {
		return good("neither a standalone Worker of Spark nor a separate shuffle service runs on this machine")
	}
	return results
}

// checkShuffle finds settings that keep the agent from governing the data that reducers fetch.
func checkShuffle(f *Facts) (results []Result) {
	n := f.NodeManager
	if n.Err != nil || n.Agent == nil {
		return nil
	}
	if n.ConfErr != nil {
		return bad(Warn, n.ConfErr.Error(), "it is unknown whether reducers' fetches are governed", "check yarn.nodemanager.aux-services in yarn-site.xml by hand")
	}
	const service, handler = "mapreduce_shuffle", "org.apache.hadoop.mapred.ShuffleHandler"
	warn := func(found, meaning, remedy string) { results = append(results, bad(Warn, found, meaning, remedy)...) }
	key := "yarn.nodemanager.aux-services." + service
	switch {
	case !slices.ContainsFunc(strings.Split(n.Conf["yarn.nodemanager.aux-services"], ","), func(s string) bool { return strings.TrimSpace(s) == service }):
		warn("yarn.nodemanager.aux-services has no "+service, "MapReduce's reducers cannot fetch from this node, with or without the agent",
			"add it in yarn-site.xml if MapReduce runs here, and restart the NodeManager")
	case n.Conf[key+".class"] != "" && n.Conf[key+".class"] != handler:
		warn(key+".class is "+n.Conf[key+".class"], "the agent governs "+handler+" only", "restore the default, or accept that the data that reducers fetch is not governed")
	case n.Conf[key+".classpath"]+n.Conf[key+".remote-classpath"] != "":
		warn(key+" has a class path of its own", "its classes are not those that the agent has woven: the data that reducers fetch is not governed", "load it from the NodeManager's own class path")
	}
	if n.Conf["mapreduce.shuffle.transferTo.allowed"] == "false" {
		warn("mapreduce.shuffle.transferTo.allowed is false", "the data that reducers fetch is not governed", "set it to true, as it is on Linux by default")
	}
	if len(results) == 0 {
		return good("%s is Hadoop's own", service)
	}
	return results
}
