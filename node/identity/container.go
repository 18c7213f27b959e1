package identity

// Container returns the container in the kernel's cgroup path of a process, "" if there is none.
// It reads nothing that may be on a disk.
func (c *Checker) Container(pid int32) string {
	text, err := c.proc.read(int(pid), "cgroup", maxCgroup)
	if err != nil {
		return ""
	}
	return containerOfCgroup(string(text), c.settings.Cgroup)
}
