package identity

// Container returns the container that the kernel's cgroup path names for a process, ""
// where it names none. It reads nothing that may lie on a disk.
func (c *Checker) Container(pid int32) string {
	text, err := c.proc.read(int(pid), "cgroup", maxCgroup)
	if err != nil {
		return ""
	}
	return containerOfCgroup(string(text), c.settings.Cgroup)
}
