package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"penstock/broker/kerberos"
	"penstock/node/mounts"
	"penstock/node/status"
	"penstock/ops/install"
)

const (
	askWait   = 10 * time.Second
	maxAnswer = 16 << 20 // bytes; /conf takes about 200 KB
	maxProc   = 64 << 10
)

// Where lists the places where Gather looks.
type Where struct {
	Address  string // the daemon's, host:port
	DataNode string // its web address
	// NodeManager is the NodeManager's web address. If it is empty, DefaultNodeManager is used, and
	// it is no error if nothing answers there.
	NodeManager string
	// HadoopConf, SparkConf and TezConf are configuration folders. If they are empty, Gather uses the
	// folders that the environment names, or the usual folders in /etc; it is no error if those do
	// not exist.
	HadoopConf, SparkConf, TezConf string
	// ResourceManagers are the web addresses of ResourceManagers, as the broker has them.
	ResourceManagers []string
	Hadoop           kerberos.Access // to all web addresses
	// ExecutorJar is the path of the agent's jar that executors on this machine load, for a machine
	// without Spark's configuration folder.
	ExecutorJar string
}

// DefaultNodeManager is the web address of a NodeManager with Hadoop's own port.
const DefaultNodeManager = "http://127.0.0.1:8042"

// Gather looks at the node: the daemon, the DataNode's and the NodeManager's web addresses, the
// configuration folders, and the machine. It changes nothing. A fact that it cannot find out is an
// error in the result.
func Gather(ctx context.Context, where Where, build string) *Facts {
	f := &Facts{Time: time.Now(), Build: build, Address: where.Address}
	f.Before = monotonic()
	f.Status, f.StatusErr = status.Fetch(ctx, where.Address)
	f.After = monotonic()
	f.DataNode = askDataNode(ctx, openSite(where.DataNode, where.Hadoop))
	f.NodeManager = askNodeManager(ctx, openSite(cmp.Or(where.NodeManager, DefaultNodeManager), where.Hadoop))
	for _, address := range where.ResourceManagers {
		f.ResourceManagers = append(f.ResourceManagers, askResourceManager(ctx, address, where.Hadoop))
	}
	f.NodeManager.Asked = where.NodeManager != ""
	f.DataNode.PID = f.seenFromHere(f.DataNode.PID, "datanode")
	f.NodeManager.PID = f.seenFromHere(f.NodeManager.PID, "nodemanager")
	if f.DataNode.PID != 0 {
		f.DataNode.Native, f.DataNode.NativeErr = mapped(proc, f.DataNode.PID, "/libhadoop.so")
	}
	f.Workers = findWorkers(proc)
	for _, c := range []struct {
		path, otherwise string
		inspect         func(string) (*install.Inspection, error)
		spark           bool
	}{
		{where.HadoopConf, cmp.Or(os.Getenv("HADOOP_CONF_DIR"), "/etc/hadoop/conf"), install.InspectHadoop, false},
		{where.SparkConf, cmp.Or(os.Getenv("SPARK_CONF_DIR"), "/etc/spark/conf"), install.InspectSpark, true},
		{where.TezConf, cmp.Or(os.Getenv("TEZ_CONF_DIR"), "/etc/tez/conf"), install.InspectTez, false},
	} {
		folder := Folder{Path: cmp.Or(c.path, c.otherwise), Asked: c.path != ""}
		if folder.Found, folder.Err = c.inspect(folder.Path); folder.Asked || !errors.Is(folder.Err, fs.ErrNotExist) {
			f.Folders = append(f.Folders, folder)
		}
		if enabled, _ := install.SparkSetting(folder.Path, serviceEnabled); c.spark && enabled == "true" { // an error is reported with the folder
			for i := range f.Workers {
				f.Workers[i].Serves = true
			}
		}
		if i := folder.Found; i != nil && c.spark && i.Prepared && i.AgentJar != "" {
			f.ExecutorJars = append(f.ExecutorJars, lookAtJar(i.AgentJar, i.Folder))
		}
	}
	if where.ExecutorJar != "" {
		f.ExecutorJars = append(f.ExecutorJars, lookAtJar(where.ExecutorJar, "--executor-jar"))
	}
	if f.Status != nil {
		f.Daemon, f.DaemonErr = readProcess(f.Status.PID)
		f.Socket, f.SocketErr = pathTo(f.Status.Socket)
	}
	if f.DataNode.PID != 0 {
		f.Node, _ = readProcess(f.DataNode.PID) // if this fails, fewer facts about the socket are checked
	}
	f.Directories = f.directories()
	f.KernelRelease = release()
	f.MissingCalls = status.MissingCalls()
	f.Memory = readMemory(proc)
	f.Synchronised, f.ClockErr = synchronised()
	return f
}

func askDataNode(ctx context.Context, at site) DataNode {
	defer at.close()
	d := DataNode{URL: at.url}
	var info struct{ Version string }
	if err := bean(ctx, at, "Hadoop:service=DataNode,name=DataNodeInfo", &info, "DataNode"); err != nil {
		d.Err = err
		return d
	}
	d.Version, _, _ = strings.Cut(info.Version, ",") // a revision follows
	d.PID, d.Java = askJVM(ctx, at)
	d.Agent = askAgent(ctx, at)
	d.Conf, d.ConfErr = askConf(ctx, at, "DataNode")
	return d
}

// seenFromHere returns a process's PID in this PID namespace. pid is the PID that the process
// itself reports. A Hadoop daemon may be in a container with another PID namespace. In that case
// Penstock's daemon knows the agent's PID in this namespace from the kernel.
func (f *Facts) seenFromHere(pid int, role string) int {
	if f.Status == nil || pid == 0 {
		return pid
	}
	for _, a := range f.Status.Agents {
		if a.Role != role {
			continue
		}
		if innermost(proc, int(a.PID)) == pid {
			return int(a.PID)
		}
	}
	return pid
}

func askNodeManager(ctx context.Context, at site) NodeManager {
	defer at.close()
	n := NodeManager{URL: at.url}
	if n.Err = bean(ctx, at, "Hadoop:service=NodeManager,name=NodeManagerMetrics", &struct{}{}, "NodeManager"); n.Err != nil {
		return n
	}
	n.PID, _ = askJVM(ctx, at)
	n.Agent = askAgent(ctx, at)
	n.Conf, n.ConfErr = askConf(ctx, at, "NodeManager")
	return n
}

// bean asks a Hadoop daemon for an MBean that only daemons of that kind have.
func bean(ctx context.Context, at site, name string, into any, kind string) error {
	found, err := askBean(ctx, at, name, into)
	if err == nil && !found {
		err = errors.New("something answers there, but it is not a " + kind)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind, at.url, err)
	}
	return nil
}

func askBean(ctx context.Context, at site, name string, into any) (bool, error) {
	body, err := at.get(ctx, "/jmx?qry="+url.QueryEscape(name))
	if err != nil {
		return false, err
	}
	return parseBean(body, into)
}

// askJVM returns 0 and "" for values that the answer lacks.
func askJVM(ctx context.Context, at site) (pid int, java string) {
	var runtime struct{ Name, SpecVersion string }
	if ok, err := askBean(ctx, at, "java.lang:type=Runtime", &runtime); ok && err == nil {
		number, _, _ := strings.Cut(runtime.Name, "@")
		pid, _ = strconv.Atoi(number)
	}
	return pid, runtime.SpecVersion
}

func askAgent(ctx context.Context, at site) *Agent {
	var agent Agent
	if ok, err := askBean(ctx, at, "penstock:type=Agent", &agent); !ok || err != nil {
		return nil
	}
	return &agent
}

func askConf(ctx context.Context, at site, kind string) (conf map[string]string, err error) {
	body, err := at.get(ctx, "/conf")
	if err == nil {
		conf, err = parseConf(body)
	}
	if err != nil {
		return nil, fmt.Errorf("the %s's configuration: %w", kind, err)
	}
	return conf, nil
}

func readProcess(pid int) (*Process, error) {
	text, err := readFile(filepath.Join(proc, strconv.Itoa(pid), "status"))
	if err != nil {
		return nil, err
	}
	return parseProcess(text)
}

func readFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProc))
	return string(b), err
}

// pathTo looks at a socket and every folder on the way to it.
func pathTo(socket string) ([]Path, error) {
	paths, err := way(socket)
	if err == nil && paths[len(paths)-1].Mode&os.ModeSocket == 0 {
		return nil, fmt.Errorf("%s is not a socket", socket)
	}
	return paths, err
}

// lookAtJar looks at a jar as a user without rights of its own would.
func lookAtJar(path, by string) Jar {
	jar := Jar{Path: path, For: by, Problem: install.JarProblem(path)}
	paths, _ := way(path) // JarProblem has reported an error
	for i, p := range paths {
		needed := fs.FileMode(0o001)
		if i == len(paths)-1 {
			needed = 0o004
		}
		if p.Mode&needed == 0 {
			jar.Closed = p.Name
			break
		}
	}
	return jar
}

// way looks at a file and every folder on the way to it.
func way(file string) ([]Path, error) {
	var names []string
	for name := filepath.Clean(file); ; name = filepath.Dir(name) {
		names = append(names, name)
		if name == filepath.Dir(name) {
			break
		}
	}
	slices.Reverse(names)
	var paths []Path
	for _, name := range names {
		st, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		p := Path{Name: name, Mode: st.Mode()}
		if s, ok := st.Sys().(*syscall.Stat_t); ok {
			p.UID, p.GID = s.Uid, s.Gid
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// directories returns the DataNode's directories from its configuration or, without it, from its
// agent.
func (f *Facts) directories() []Directory {
	names := parseDataDirs(f.DataNode.Conf["dfs.datanode.data.dir"])
	if len(names) == 0 && f.Status != nil {
		for _, a := range f.Status.Agents {
			if f.DataNode.PID == 0 || int(a.PID) == f.DataNode.PID {
				names = append(names, a.Directories...)
			}
		}
	}
	var dirs []Directory
	var calls mounts.Calls
	for _, name := range names {
		d, err := mounts.Do(&calls, 0, name, diskPatience, func() Directory { return lookAt(name) }, nil)
		if err != nil {
			d = Directory{Name: name, Err: err}
		}
		dirs = append(dirs, d)
	}
	return dirs
}

// diskPatience is the longest wait for a directory's disk.
const diskPatience = 2 * time.Second

func lookAt(name string) Directory {
	d := Directory{Name: name}
	st, err := os.Stat(name)
	if err != nil {
		d.Err = err
	} else if s, ok := st.Sys().(*syscall.Stat_t); ok {
		d.Owner = s.Uid
	}
	return d
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func synchronised() (bool, error) {
	const timeError = 5 // TIME_ERROR of adjtimex(2)
	state, err := unix.Adjtimex(&unix.Timex{})
	return err == nil && state != timeError, err
}

func monotonic() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return t.Nano()
}
