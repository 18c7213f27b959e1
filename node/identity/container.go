package identity

import "penstock/node/monitor/owner"

// Container returns the container in the kernel's cgroup path of a process, "" if there is none: one of YARN, a pod with
// all its containers, or a container of Mesos. It reads nothing that may be on a disk. Images often have one user for the
// processes of all pods, so users alone would not tell them apart.
func (c *Checker) Container(pid int32) string {
	text, err := c.proc.read(int(pid), "cgroup", maxCgroup)
	if err != nil {
		return ""
	}
	if id := containerOfCgroup(string(text), c.settings.Cgroup); id != "" {
		return id
	}
	switch o := orchestrated(string(text)); o.Kind {
	case owner.Kubernetes:
		return "pod " + o.Pod
	case owner.Mesos:
		return "mesos " + o.ID
	}
	return ""
}
