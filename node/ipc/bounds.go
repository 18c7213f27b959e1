package ipc

// Bounds are the maximum numbers of connections and open files. They follow from the number of
// descriptors that the process may have. Together they leave some descriptors free, so accepting
// and the status port never lack one.
type Bounds struct {
	Connections int // accepted connections, in all
	Servers     int // of these, reserved for DataNodes, NodeManagers and Workers
	Greetings   int // in addition, connections that have not sent their hello
	ServerFiles int // files and directories open for servers
	TaskFiles   int // the same for tasks and executors
}

// ownFiles is the number of descriptors that the daemon needs for itself: for the status port,
// brokers, other nodes, and reads of /proc and /sys.
const ownFiles = 512

// BoundsFor returns the bounds for a process that may have that many descriptors. With 4,096
// descriptors or more, the bounds on connections have their full values; with fewer, all bounds
// shrink in proportion.
func BoundsFor(descriptors uint64) Bounds {
	n := int(min(descriptors, 1<<20))
	if n < 8*ownFiles {
		part := n / 16
		return Bounds{Connections: 4 * part, Servers: part, Greetings: 2 * part, ServerFiles: 4 * part, TaskFiles: 2 * part}
	}
	files := n - ownFiles - MaxConnections - MaxGreetings
	return Bounds{Connections: MaxConnections, Servers: MaxServers, Greetings: MaxGreetings,
		ServerFiles: files / 3 * 2, TaskFiles: files / 3}
}
