package ipc

// Bounds are how many connections and open files there may be. They follow from how many
// descriptors the process may have, such that all of them together leave some: neither
// accepting nor the status port ever lacks one.
type Bounds struct {
	Connections int // accepted, in all
	Servers     int // of them, kept for DataNodes and NodeManagers
	Greetings   int // besides, that have not said who they are
	ServerFiles int // files and directories open for servers
	TaskFiles   int // and for tasks and executors
}

// ownFiles are the descriptors that the daemon needs for itself: the status port's
// connections, brokers, other nodes, what it reads of /proc and /sys.
const ownFiles = 512

// BoundsFor gives the bounds for a process that may have that many descriptors. From 4,096
// on the connections have their full number; with fewer everything is in proportion.
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
