// Package owner recognises the owner of a process from its cgroup path: a container of YARN, Mesos,
// Kubernetes, Docker or Podman, or a systemd unit.
//
// Problem: the kernel charges I/O to cgroups, and an operator thinks in jobs, pods and services.
// Each manager names its cgroups in its own way, and Kubernetes, Docker and Podman in two ways, for
// the cgroupfs and the systemd driver; cgroup v1 and v2 use the same names. Choice: a pure function
// of the path, which needs no call to a manager and works while managers are down.
//
// A path may name several owners: a NodeManager in a Docker container creates its YARN containers
// below its own cgroup. The innermost container is the owner; a unit is the owner only outside of
// containers.
//
// A path is evidence only as far as its names were chosen by root of this machine. Users may create
// cgroups of any name below their own session, and root of a container below the container's cgroup
// (Owner.Delegated).
package owner

import "strings"

// Kind is the kind of an owner, as in JSON.
type Kind string

const (
	None       Kind = ""
	YARN       Kind = "yarn"
	Mesos      Kind = "mesos"
	Kubernetes Kind = "kubernetes"
	Docker     Kind = "docker"
	Podman     Kind = "podman"
	Unit       Kind = "unit" // a systemd service or scope
)

// Owner is the owner of a cgroup. The zero value stands for none.
type Owner struct {
	Kind Kind
	// ID identifies the container: container_1700000000000_0001_01_000002 of YARN, 64 hexadecimal
	// digits of a container runtime, a UUID of Mesos. It is the name of a unit, such as fio.service,
	// and is empty for a pod's own cgroup.
	ID string
	// Application is the YARN application; Pod is the UID of the Kubernetes pod, with dashes.
	Application, Pod string
	// Delegated reports that somebody without privileges on this machine may have chosen the names:
	// the cgroup is below a user's session or a container; or it is that of a pod or of Mesos, and is below a scope, or a
	// service that is no container runtime, since systemd may have delegated their cgroups.
	Delegated bool
}

// maxPath is the maximum length of a path, in bytes; the kernel's own bound.
const maxPath = 4096

// Of returns the owner of a cgroup, by its path from the root of the hierarchy.
func Of(path string) (o Owner) {
	if len(path) > maxPath {
		return Owner{}
	}
	var unit Owner
	delegated, ofOthers, pod := false, false, ""
	parent := ""
	for name := range strings.SplitSeq(path, "/") {
		// containerd with the systemd driver's names, but without that driver, joins the names of pod
		// and container with colons, instead of one below the other.
		if slice, rest, colons := strings.Cut(name, ":"); colons {
			if uid := podOf(slice); uid != "" {
				pod, name = uid, rest[strings.LastIndexByte(rest, ':')+1:]
				o = Owner{Kind: Kubernetes, Pod: pod, Delegated: delegated || ofOthers}
			}
		}
		found := Owner{}
		switch {
		case ApplicationOf(name) != "":
			found = Owner{Kind: YARN, ID: name, Application: ApplicationOf(name)}
		case podOf(name) != "":
			pod = podOf(name)
			found = Owner{Kind: Kubernetes, Pod: pod}
		case parent == "mesos" && isUUID(name):
			found = Owner{Kind: Mesos, ID: name}
		default:
			found = runtimeContainer(parent, name, pod)
		}
		switch {
		case found.Kind != None:
			found.Delegated = delegated || ofOthers && (found.Kind == Kubernetes || found.Kind == Mesos)
			o = found
			delegated = delegated || o.ID != ""
		case strings.HasPrefix(name, "user@") || name == "user.slice":
			delegated = true
		case mayDelegate(name):
			ofOthers = true
		}
		if isUnit(name) {
			unit = Owner{Kind: Unit, ID: name, Delegated: delegated}
		}
		parent = name
	}
	if o.Kind == None {
		return unit
	}
	return o
}

// runtimes are services below which a container runtime or an orchestrator may make cgroups.
var runtimes = map[string]bool{"containerd.service": true, "crio.service": true, "docker.service": true, "kubelet.service": true,
	"k3s.service": true, "k3s-agent.service": true, "mesos-slave.service": true, "mesos-agent.service": true}

// mayDelegate reports whether somebody other than root may choose the names below a cgroup: a service that is no runtime, a
// scope, or a container of LXC.
func mayDelegate(name string) bool {
	return strings.HasSuffix(name, ".service") && !runtimes[name] || strings.HasSuffix(name, ".scope") || name == "lxc" || strings.HasPrefix(name, "lxc.")
}

// CgroupOf returns the path of the cgroup of a path's pod or Mesos container: the prefix of path that contains all of
// the pod's containers, if they have a cgroup in common, and otherwise the container's own. It is empty for other owners, and
// for names that are no evidence.
func CgroupOf(path string) string {
	o := Of(path)
	if o.Kind != Kubernetes && o.Kind != Mesos || o.Delegated {
		return ""
	}
	for at := 0; at < len(path); {
		end := len(path)
		if next := strings.IndexByte(path[at+1:], '/'); next >= 0 {
			end = at + 1 + next
		}
		name := path[at+1 : end]
		slice, _, _ := strings.Cut(name, ":")
		if o.Kind == Kubernetes && podOf(slice) == o.Pod || o.Kind == Mesos && name == o.ID {
			return path[:end]
		}
		at = end
	}
	return ""
}

// runtimeContainer recognises the cgroup of a Docker or Podman container. Within a pod, it
// recognises the containers of every runtime. parent is the name of the cgroup above; pod is the UID
// of the pod that contains the cgroup, or empty.
func runtimeContainer(parent, name, pod string) Owner {
	scope, isScope := strings.CutSuffix(name, ".scope")
	prefix, id := "", scope
	if i := strings.LastIndexByte(scope, '-'); i >= 0 {
		prefix, id = scope[:i], scope[i+1:]
	}
	if !isHex(id, 64) {
		return Owner{}
	}
	switch {
	case pod != "" && (prefix == "" || isScope):
		return Owner{Kind: Kubernetes, ID: id, Pod: pod}
	case prefix == "libpod":
		return Owner{Kind: Podman, ID: id}
	case prefix == "docker" && isScope, prefix == "" && parent == "docker":
		return Owner{Kind: Docker, ID: id}
	}
	return Owner{}
}

// podOf returns the UID of the pod that a cgroup belongs to: podUID with the cgroupfs driver, and
// kubepods-podUID.slice or kubepods-QOS-podUID.slice, with underscores, with the systemd driver.
func podOf(name string) (uid string) {
	slice, isSlice := strings.CutSuffix(name, ".slice")
	if isSlice {
		if !strings.HasPrefix(slice, "kubepods-") && !strings.Contains(slice, "-kubepods-") {
			return ""
		}
		slice = slice[strings.LastIndexByte(slice, '-')+1:]
	}
	uid, ok := strings.CutPrefix(slice, "pod")
	if !ok {
		return ""
	}
	if isSlice {
		uid = strings.ReplaceAll(uid, "_", "-")
	}
	// Static pods have a hash instead of a UUID.
	if !isUUID(uid) && !isHex(uid, 32) {
		return ""
	}
	return uid
}

// isUnit reports whether a cgroup is that of a systemd service or scope. Slices only group units. The user of a service with
// Delegate=yes may give cgroups any name, also one that is no text, and metrics accept valid UTF-8 only. So all characters must
// be those of units (systemd.unit(5)).
func isUnit(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\@"
	return strings.Trim(name, letters) == "" && len(name) <= 255 && (strings.HasSuffix(name, ".service") || strings.HasSuffix(name, ".scope")) && !strings.HasPrefix(name, "user@") && name[0] != '.'
}

// ApplicationOf returns the YARN application of a container id, such as
// container_e17_1700000000000_0001_01_000002, and "" for everything else. The epoch, e17, is
// missing before the first restart of a ResourceManager that recovers its applications.
func ApplicationOf(container string) string {
	rest, ok := strings.CutPrefix(container, "container_")
	if !ok {
		return ""
	}
	if after, ok := strings.CutPrefix(rest, "e"); ok {
		epoch, tail, cut := strings.Cut(after, "_")
		if !cut || !Digits(epoch, 2, 10) {
			return ""
		}
		rest = tail
	}
	stamp, rest, _ := strings.Cut(rest, "_")
	number, rest, _ := strings.Cut(rest, "_")
	attempt, serial, _ := strings.Cut(rest, "_")
	if !Digits(stamp, 13, 13) || !Digits(number, 4, 10) || !Digits(attempt, 2, 10) || !Digits(serial, 6, 19) {
		return ""
	}
	return "application_" + stamp + "_" + number
}

// Digits reports whether s consists of low to high decimal digits.
func Digits(s string, low, high int) bool {
	if len(s) < low || len(s) > high {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// isHex reports whether s consists of so many lower-case hexadecimal digits.
func isHex(s string, length int) bool {
	return len(s) == length && strings.Trim(s, "0123456789abcdef") == ""
}

// isUUID reports whether s is a UUID in its usual form of lower-case digits.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, length := range []int{8, 4, 4, 4, 12} {
		part, rest, more := strings.Cut(s, "-")
		if !isHex(part, length) || more != (i < 4) {
			return false
		}
		s = rest
	}
	return true
}

// String returns a short name for people: the manager, and what identifies the container there. It
// says so if the name is no evidence.
func (o Owner) String() string {
	if o.Delegated {
		return o.name() + " (name not verified)"
	}
	return o.name()
}

func (o Owner) name() string {
	const short = 12 // digits that Docker's own tools show
	switch o.Kind {
	case None:
		return ""
	case YARN:
		return o.Application + " " + o.ID[strings.LastIndexByte(o.ID, '_')+1:]
	case Unit:
		return o.ID
	case Kubernetes:
		if o.ID == "" {
			return "pod " + o.Pod
		}
		return "pod " + o.Pod + " " + o.ID[:short]
	default:
		return string(o.Kind) + " " + o.ID[:min(short, len(o.ID))]
	}
}
