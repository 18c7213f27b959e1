package doctor

import (
	"io/fs"
	"time"

	"penstock/node/status"
	"penstock/ops/install"
)

// Facts are what Gather found out about a node. A part that could not be read contains the error
// instead.
type Facts struct {
	Time    time.Time
	Build   string // of this program
	Address string // of the daemon

	Status    *status.Document // nil: see StatusErr
	StatusErr error
	Before    int64 // CLOCK_MONOTONIC when the status was requested
	After     int64 // and when it arrived, in nanoseconds

	DataNode    DataNode
	NodeManager NodeManager

	ResourceManagers []ResourceManager // those that were named

	Folders []Folder // configuration folders that were named, or are in the usual places

	ExecutorJars []Jar // agent's jars that Spark's executors load on this machine

	Daemon    *Process // nil: see DaemonErr
	DaemonErr error
	Node      *Process // the DataNode's; nil if it is not visible on this machine

	Socket    []Path // the folders from / to the socket, then the socket
	SocketErr error

	Workers []Worker // processes of Spark that may serve files of shuffles on this machine

	Directories []Directory // data directories of the DataNode's configuration or, without it, the agents'

	KernelRelease string
	MissingCalls  []status.MissingCall // in the doctor's process
	Memory        Memory
	Synchronised  bool // whether adjtimex reports that the system clock is synchronised
	ClockErr      error
}

// DataNode has the facts from the DataNode's web address.
type DataNode struct {
	URL     string
	Err     error // it does not answer
	Version string
	Java    string // specification version: 17, 1.8
	PID     int    // 0: unknown
	Agent   *Agent // nil: no such MBean
	Conf    map[string]string
	ConfErr error
	// Native reports whether Hadoop's native library is in the process.
	Native    bool
	NativeErr error
}

// NodeManager has the facts from the NodeManager's web address.
type NodeManager struct {
	URL     string
	Asked   bool  // the address was named, and is not the default
	Err     error // it does not answer
	PID     int   // 0: unknown
	Agent   *Agent
	Conf    map[string]string
	ConfErr error
}

// ResourceManager has the facts about a ResourceManager's web address.
type ResourceManager struct {
	URL       string
	Principal string // as which it was asked; empty: none
	Asks      bool   // it asks for Kerberos
	Tried     bool   // it was asked as the principal
	Wrong     bool   // the principal's files or names are wrong, so it could not be asked
	Err       error  // of the last request
}

// Folder is a configuration folder and its inspection.
type Folder struct {
	Path  string
	Asked bool
	Found *install.Inspection // nil: see Err
	Err   error
}

// Agent is the MBean penstock:type=Agent.
type Agent struct {
	State         string
	WovenMethods  []string
	Missing       []string
	LeftOut       []string
	Connected     bool
	Mode          string
	GateBackstops int64
	FailedOpen    int64
	Suppressed    int64
}

// Jar is an agent's jar.
type Jar struct {
	Path    string
	For     string // who loads it
	Problem string // empty: it is there, and a jar
	Closed  string // the first folder of the path, or the jar, that not every user may read
}

// Worker is a standalone Worker of Spark, or Spark's shuffle service in a separate process.
type Worker struct {
	PID      int
	Serves   bool // it is known to serve files of shuffles
	HasAgent bool // its command line loads an agent with the role of a Worker
	Service  bool // it is a process that does nothing else
}

// Process has facts about a process from /proc/PID/status.
type Process struct {
	PID          int
	UID, GID     uint32 // effective
	Groups       []uint32
	Capabilities uint64 // CapEff
}

// Path is a folder above the socket, or the socket.
type Path struct {
	Name     string
	Mode     fs.FileMode
	UID, GID uint32
}

// Directory is a data directory.
type Directory struct {
	Name  string
	Owner uint32
	Err   error
}

// Memory has facts from /proc/meminfo, and the kernel's dirty limits. A limit is given in bytes or
// as a ratio; the other field of the pair is zero.
type Memory struct {
	Available       int64 // bytes
	BackgroundBytes int64
	BackgroundRatio int64 // percent of available memory
	DirtyBytes      int64
	DirtyRatio      int64
	Err             error
}

// background returns the limit for background writeback, in bytes.
func (m Memory) background() int64 { return limit(m.BackgroundBytes, m.BackgroundRatio, m.Available) }
func (m Memory) dirty() int64      { return limit(m.DirtyBytes, m.DirtyRatio, m.Available) }

func limit(bytes, ratio, available int64) int64 {
	if bytes > 0 {
		return bytes
	}
	return available / 100 * ratio
}
