package doctor

import (
	"io/fs"
	"time"

	"penstock/node/status"
	"penstock/ops/install"
)

// Facts are what was found. A part that could not be had carries its error.
type Facts struct {
	Time    time.Time
	Build   string // of this program
	Address string // of the daemon

	Status    *status.Document // nil: see StatusErr
	StatusErr error
	Before    int64 // CLOCK_MONOTONIC when the status was asked for
	After     int64 // and when it came, in nanoseconds

	DataNode    DataNode
	NodeManager NodeManager

	Folders []Folder // configuration folders that were asked for, or are where one would look

	Daemon    *Process // nil: see DaemonErr
	DaemonErr error
	Node      *Process // the DataNode's, nil if it is not to be seen from here

	Socket    []Path // its folders from / on, then the socket itself
	SocketErr error

	Directories []Directory // data directories of the DataNode's configuration or, without it, the agents'

	KernelRelease string
	CachestatErr  error // what cachestat said here
	Memory        Memory
	Synchronised  bool // the system clock, by adjtimex
	ClockErr      error
}

// DataNode is what its web address tells.
type DataNode struct {
	URL     string
	Err     error // it does not answer
	Version string
	Java    string // specification version: 17, 1.8
	PID     int    // 0: not told
	Agent   *Agent // nil: no such MBean
	Conf    map[string]string
	ConfErr error
	// Native reports whether Hadoop's native library is in the process.
	Native    bool
	NativeErr error
}

// NodeManager is what its web address tells.
type NodeManager struct {
	URL     string
	Asked   bool  // the address was named, and not only guessed
	Err     error // it does not answer
	PID     int   // 0: not told
	Agent   *Agent
	Conf    map[string]string
	ConfErr error
}

// Folder is a configuration folder as `penstock install` left it, or somebody since.
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
	Connected     bool
	Mode          string
	GateBackstops int64
	FailedOpen    int64
	Suppressed    int64
}

// Process is what /proc/PID/status tells of a process.
type Process struct {
	PID          int
	UID, GID     uint32 // effective
	Groups       []uint32
	Capabilities uint64 // CapEff
}

// Path is a file on the way to the socket.
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

// Memory is /proc/meminfo and the kernel's dirty limits. Of each pair of limits
// one is zero.
type Memory struct {
	Available       int64 // bytes
	BackgroundBytes int64
	BackgroundRatio int64 // percent of what is available
	DirtyBytes      int64
	DirtyRatio      int64
	Err             error
}

// background and dirty are the limits in bytes.
func (m Memory) background() int64 { return limit(m.BackgroundBytes, m.BackgroundRatio, m.Available) }
func (m Memory) dirty() int64      { return limit(m.DirtyBytes, m.DirtyRatio, m.Available) }

func limit(bytes, ratio, available int64) int64 {
	if bytes > 0 {
		return bytes
	}
	return available / 100 * ratio
}
