package gate

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

const (
	// AnyUser is a Rule's UID that selects no user.
	AnyUser = -1
	// MaxRules is the largest number of rules.
	MaxRules = 512
	// MaxPasses is the largest number of processes in a pass list.
	MaxPasses = 8192
	// maxText is the longest cgroup prefix and command, in bytes.
	maxText = 255
)

// Rule selects processes that are to be held. A process must match all fields that are set. The first rule
// that matches a process decides. A process that no rule matches passes.
type Rule struct {
	// Class is the number that the daemon gives to the processes of the rule. 0 lets them pass.
	Class uint32
	// PID selects one process. 0 selects no process by its id.
	PID int
	// UID selects a real user id. AnyUser selects no user.
	UID int
	// CgroupPrefix selects the processes in a control group, of any hierarchy, and in those below it:
	// "/docker" matches "/docker/1a2b", and not "/docker-proxy".
	CgroupPrefix string
	// Comm selects the command name of a process, at most 15 bytes as the kernel keeps it.
	Comm string
}

// Validate returns an error if r selects nothing or too much.
func (r Rule) Validate() error {
	switch {
	case r.PID == 0 && r.UID == AnyUser && r.CgroupPrefix == "" && r.Comm == "":
		return fmt.Errorf("rule of class %d: it would select every process; set a user, a control group, a command or a process id", r.Class)
	case r.PID < 0 || r.UID < AnyUser:
		return fmt.Errorf("rule of class %d: pid %d, user %d: want positive numbers", r.Class, r.PID, r.UID)
	case len(r.Comm) > 15:
		return fmt.Errorf("rule of class %d: the command %q is longer than the 15 bytes that the kernel keeps", r.Class, r.Comm)
	case len(r.CgroupPrefix) > maxText:
		return fmt.Errorf("rule of class %d: a control group's path of %d bytes: at most %d are possible", r.Class, len(r.CgroupPrefix), maxText)
	case r.CgroupPrefix != "" && !strings.HasPrefix(r.CgroupPrefix, "/"):
		return fmt.Errorf("rule of class %d: the control group %q does not begin with /", r.Class, r.CgroupPrefix)
	}
	return nil
}

// facts are the properties of a process that rules compare.
type facts struct {
	pid, parent, uid int
	comm             string
	cgroups          []byte // the text of /proc/PID/cgroup
}

// kernelThread reports whether the process is a thread of the kernel. Such a thread works for many
// processes, so it is never held.
func (f *facts) kernelThread() bool {
	const kthreadd = 2
	return f.pid == kthreadd || f.parent == kthreadd
}

func (r *Rule) matches(f *facts) bool {
	return (r.PID == 0 || r.PID == f.pid) &&
		(r.UID == AnyUser || r.UID == f.uid) &&
		(r.Comm == "" || r.Comm == f.comm) &&
		(r.CgroupPrefix == "" || inCgroup(f.cgroups, r.CgroupPrefix))
}

// inCgroup reports whether the text of /proc/PID/cgroup has a path that is prefix or below it.
func inCgroup(text []byte, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	for line := range bytes.Lines(text) {
		_, line, _ = bytes.Cut(line, []byte(":"))
		_, path, found := bytes.Cut(line, []byte(":"))
		if !found {
			continue
		}
		rest, below := bytes.CutPrefix(bytes.TrimSuffix(path, []byte("\n")), []byte(prefix))
		if below && (len(rest) == 0 || rest[0] == '/') {
			return true
		}
	}
	return false
}

// parseStatus reads the text of /proc/TID/status. Its Name is the thread's name, which is the
// process's name only if TID is the process.
func parseStatus(text []byte) (f facts, ok bool) {
	found := 0
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		first, _, _ := bytes.Cut(value, []byte("\t"))
		n, err := strconv.Atoi(string(first))
		switch string(name) {
		case "Name":
			f.comm = string(value)
			continue
		case "Tgid":
			f.pid = n
		case "PPid":
			f.parent = n
		case "Uid":
			f.uid = n
		default:
			continue
		}
		if err != nil || n < 0 {
			return facts{}, false
		}
		if found++; found == 3 {
			return f, f.pid > 0
		}
	}
	return facts{}, false
}

// parseStart reads the start time of a process, in clock ticks since the boot, from the text of
// /proc/PID/stat.
func parseStart(text []byte) (uint64, bool) {
	end := bytes.LastIndexByte(text, ')') // a command may contain spaces and parentheses
	if end < 0 {
		return 0, false
	}
	const startTime = 19 // index of the start time among the fields after the command
	fields := bytes.Fields(text[end+1:])
	if len(fields) <= startTime {
		return 0, false
	}
	start, err := strconv.ParseUint(string(fields[startTime]), 10, 64)
	return start, err == nil
}
