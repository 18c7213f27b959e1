package identity

import (
	"net/netip"
	"strings"

	"penstock/node/monitor/owner"
)

// Container is a container of Kubernetes or Mesos.
type Container struct {
	Name string // for the log
	// Application is the application that the container works for; empty: for none that has a flow of its own.
	Application string
}

// Containers knows the containers of Kubernetes and Mesos on this machine. Its methods do not block.
type Containers interface {
	// Of returns the container of a cgroup's owner; known is false if its orchestrator has not reported it.
	Of(o owner.Owner) (c Container, known bool)
	// At returns the container that has this address; ok is false if there is none.
	At(address netip.Addr) (c Container, ok bool)
}

// maxDepth is the largest depth at which a pod or a Mesos container is looked for. Orchestrators use less than ten.
const maxDepth = 32

// orchestrated finds a container of Kubernetes or Mesos in the text of /proc/PID/cgroup. Nobody but root may have chosen its
// name (owner.Owner.Delegated). Names below the container do not matter: root of the container may choose
// them. If the hierarchies name different containers, the result is none.
func orchestrated(text string) (found owner.Owner) {
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		_, path, cut := strings.Cut(rest, ":")
		if !ok || !cut || !strings.HasPrefix(path, "/") {
			continue
		}
		o := outermost(path)
		if o.Kind == owner.None {
			continue
		}
		if found.Kind != owner.None && found != o {
			return owner.Owner{}
		}
		found = o
	}
	return found
}

// outermost returns the outermost container in a path if it is a pod, without the container in the pod, or a container
// of Mesos.
func outermost(path string) owner.Owner {
	end := 0
	for range maxDepth {
		if end >= len(path) {
			break
		}
		begin := end + 1
		if end = len(path); strings.Contains(path[begin:], "/") {
			end = begin + strings.IndexByte(path[begin:], '/')
		}
		o := owner.Of(path[:end])
		switch {
		case o.Delegated:
			return owner.Owner{}
		case o.Kind == owner.Kubernetes:
			return owner.Owner{Kind: o.Kind, Pod: o.Pod}
		case o.Kind == owner.Mesos:
			return owner.Owner{Kind: o.Kind, ID: o.ID}
		case o.Kind != owner.None && o.Kind != owner.Unit:
			return owner.Owner{}
		}
	}
	return owner.Owner{}
}
