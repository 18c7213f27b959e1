package config

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"penstock/core/limit"
	"penstock/core/policy"
	"penstock/node/device"
	"penstock/node/identity"
	"penstock/settings"
)

// Control has the settings of kernel control: whether, and by which mechanisms, the daemon may hold
// processes and connections that have no agent. Without it, the daemon does not change the system.
type Control struct {
	// Mode is off, observe (the default: the daemon only reports what it would do) or enforce.
	Mode string `yaml:"mode"`
	// Journal is the path of the record of changes; default: control.journal beside the socket. Its
	// folder must be writable by the daemon's user only.
	Journal string `yaml:"journal"`
	// Mechanisms are the rungs of the ladder that may be used; default gate, cgroup and pacing. The
	// freezer and the shaper must be named.
	Mechanisms []string `yaml:"mechanisms"`
	// Directories name the file systems on which processes may be held; default: data_dirs and
	// local_dirs.
	Directories []string `yaml:"directories"`
	// Joining says which TCP connections between containers of this machine are joined. Without it, none is.
	Joining *Joining `yaml:"joining"`
}

// Joining says which connections are joined: what one end sends goes straight into the other end's receive queue
// (package node/control/join).
type Joining struct {
	// Ports are servers' ports, as in the container or as published; default: DefaultJoinedPorts. An empty list
	// stands for all ports.
	Ports []uint16 `yaml:"ports"`
	// Cgroup is the folder of a cgroup (v2) whose sockets may be joined; default: all sockets of the machine.
	Cgroup string `yaml:"cgroup"`
}

// DefaultJoinedPorts returns the usual ports of Hadoop's and Spark's servers: the NameNode (8020), DataNodes (9866, and 9867
// for calls), the shuffle handler of MapReduce (13562) and Spark's shuffle service (7337).
func DefaultJoinedPorts() []uint16 { return []uint16{7337, 8020, 9866, 9867, 13562} }

// MaxJoinedPorts is the maximum number of ports in Joining.
const MaxJoinedPorts = 1024

// mechanisms are the names that the setting Mechanisms can have.
var mechanisms = []string{"gate", "cgroup", "freezer", "pacing", "shaper"}

// validateControl fills in the defaults and adds mistakes to those in doc.
func (n *Node) validateControl() {
	c := n.Control
	if c == nil {
		return
	}
	if c.Mode == "" {
		c.Mode = "observe"
	}
	if _, err := device.ParseMode(c.Mode); err != nil {
		n.doc.Add("control: ", err, "control", "mode")
	}
	if c.Journal == "" {
		c.Journal = ControlJournal(n)
	}
	if !filepath.IsAbs(c.Journal) {
		c.Journal = filepath.Join(n.base, c.Journal)
	}
	if !n.doc.Has("control", "mechanisms") {
		c.Mechanisms = []string{"gate", "cgroup", "pacing"}
	}
	for i, m := range c.Mechanisms {
		if !slices.Contains(mechanisms, m) {
			n.doc.Add("control: ", fmt.Errorf("mechanism %q: use %s", m, strings.Join(mechanisms, ", ")), "control", "mechanisms", i)
		}
	}
	n.absolute(c.Directories, "control", "directories")
	n.validateJoining()
	if !n.doc.Has("control", "directories") {
		c.Directories = slices.Concat(n.DataDirs, n.LocalDirs)
	}
}

func (n *Node) validateJoining() {
	switch j := n.Control.Joining; {
	case j == nil:
	case !n.doc.Has("control", "joining", "ports"):
		j.Ports = DefaultJoinedPorts()
		fallthrough
	default:
		if len(j.Ports) > MaxJoinedPorts {
			n.doc.Add("control: ", fmt.Errorf("%d ports: use at most %d", len(j.Ports), MaxJoinedPorts), "control", "joining", "ports")
		}
		for i, port := range j.Ports {
			if port == 0 {
				n.doc.Add("control: ", errors.New("port 0: use 1 to 65535; an empty list stands for all ports"), "control", "joining", "ports", i)
			}
		}
		if j.Cgroup != "" && !filepath.IsAbs(j.Cgroup) {
			n.doc.Add("control: ", fmt.Errorf("%q: give the absolute path of a cgroup's folder, such as /sys/fs/cgroup/hadoop", j.Cgroup), "control", "joining", "cgroup")
		}
	}
}

// JoinedFolder returns the folder where the programs that join connections are pinned.
func JoinedFolder(journal string) string { return filepath.Join(filepath.Dir(journal), "joined") }

// ControlJournal returns the path of the record of changes, also for settings without control.
func ControlJournal(n *Node) string {
	if n.Control != nil && n.Control.Journal != "" {
		return n.Control.Journal
	}
	return filepath.Join(filepath.Dir(n.Socket), "control.journal")
}

// ProcessFlow is the prefix of the names of flows of processes without an agent.
const ProcessFlow = "process:"

// Process describes processes without an agent that form one flow, named process: and the name, or belong to the flow of a
// service. A process belongs to the first entry that matches. All given conditions must match.
type Process struct {
	Name    string `yaml:"name"`
	User    string `yaml:"user"`    // name or id
	Command string `yaml:"command"` // the command's name, at most 15 bytes as the kernel keeps it
	Cgroup  string `yaml:"cgroup"`  // the cgroup's path, as in /proc/PID/cgroup; cgroups below belong to it
	// Application is a pattern for the names of applications of Kubernetes and Mesos: the entry is for their containers on
	// this machine. With it, the entry has no cgroup.
	Application string `yaml:"application"`
	// Service is the name of a service of the file: the processes belong to the service's flow, whose rules give weight, limit
	// and mode. So files that the service reads and writes by itself, such as blocks in short-circuit reads, count together
	// with what it reads and writes through DataNodes. Without it, the entry has a flow of its own.
	Service string         `yaml:"service"`
	Weight  int            `yaml:"weight"` // default: the default weight of the file
	Limit   settings.Bytes `yaml:"limit"`  // per second, on each device; default: none
	Mode    string         `yaml:"mode"`   // default: enforce, with which the daemon's own mode applies
}

// Flow returns the name of the flow to which the processes belong.
func (p *Process) Flow() string {
	if p.Service != "" {
		return identity.NamedFlow + p.Service
	}
	return ProcessFlow + p.Name
}

// Connection limits the TCP connections between DataNodes and an application's containers.
type Connection struct {
	Application string         `yaml:"application"` // a pattern for the application's flow
	Direction   string         `yaml:"direction"`   // read (DataNode to container), write, or both (default)
	Limit       settings.Bytes `yaml:"limit"`       // per second, of each connection
}

// Bounds on the lists in a weights file.
const (
	MaxProcesses   = 64
	MaxConnections = 1000
)

// commLength is how many bytes of a command's name the kernel keeps.
const commLength = 15

// validateProcesses fills in the defaults and adds mistakes to those in doc.
func (w *Weights) validateProcesses() {
	if len(w.Processes) > MaxProcesses {
		w.doc.Add("", fmt.Errorf("%d processes: use at most %d", len(w.Processes), MaxProcesses), "processes")
		return
	}
	names := map[string]bool{}
	for i := range w.Processes {
		p := &w.Processes[i]
		fail := func(field, format string, args ...any) {
			at := []any{"processes", i}
			if field != "" {
				at = append(at, field)
			}
			w.doc.Add(fmt.Sprintf("process %d: ", i+1), fmt.Errorf(format, args...), at...)
		}
		if !w.doc.Has("processes", i, "weight") {
			p.Weight = w.Default
		}
		if p.Mode == "" {
			p.Mode = "enforce"
		}
		if err := checkName(p.Name); err != nil {
			fail("name", "%v", err)
		} else if names[p.Name] {
			fail("name", "the name %s is in use already; give each entry a name of its own", p.Name)
		}
		names[p.Name] = true
		if p.User == "" && p.Command == "" && p.Cgroup == "" && p.Application == "" {
			fail("", "give user, command, cgroup or application")
		}
		if _, err := path.Match(p.Application, ""); err != nil || len(p.Application) > policy.MaxPattern {
			fail("application", "application: pattern %.60q: use at most %d bytes, with * ? and [abc]", p.Application, policy.MaxPattern)
		} else if p.Application != "" && p.Cgroup != "" {
			fail("application", "give application or cgroup: an application's containers have cgroups of their own")
		}
		if p.Service != "" {
			w.validateServiceOf(i, fail)
		}
		if len(p.Command) > commLength {
			fail("command", "command %q: the kernel keeps %d bytes of a command's name; use %q", p.Command, commLength, p.Command[:commLength])
		}
		if c := p.Cgroup; c != "" && (!strings.HasPrefix(c, "/") || c != path.Clean(c) || c == "/" || len(c) > policy.MaxPattern) {
			fail("cgroup", "cgroup %q: give a path as in /proc/PID/cgroup, such as /system.slice/backup.service, of at most %d bytes", c, policy.MaxPattern)
		}
		if p.Weight < 1 || p.Weight > maxWeight {
			fail("weight", "weight %d: use 1 to %d", p.Weight, maxWeight)
		}
		if _, err := device.ParseMode(p.Mode); err != nil {
			fail("mode", "%v", err)
		}
		if err := checkLimit(p.Limit); err != nil {
			fail("limit", "%v", err)
		}
	}
}

// validateServiceOf checks the entry i of processes, which has a service.
func (w *Weights) validateServiceOf(i int, fail func(field, format string, args ...any)) {
	p := w.Processes[i]
	switch {
	case p.User == "" || p.User == identity.AnyUser:
		fail("service", "give the service's user: anybody can have a command's name, and processes of the service get its weight")
	case !slices.ContainsFunc(w.Services, func(s Service) bool { return s.Name == p.Service && (s.User == p.User || s.User == identity.AnyUser) }):
		fail("service", "service %.80q: no entry of services has this name and user %.80q", p.Service, p.User)
	}
	if p.Application != "" {
		fail("application", "give application or service: an application's containers are no service")
	}
	for _, field := range []string{"weight", "limit", "mode"} {
		if w.doc.Has("processes", i, field) {
			fail(field, "%s: not with service; give the rule {flow: \"%s\"} the %s", field, p.Flow(), field)
		}
	}
}

// validateConnections fills in the defaults and adds mistakes to those in doc.
func (w *Weights) validateConnections() {
	if len(w.Connections) > MaxConnections {
		w.doc.Add("", fmt.Errorf("%d connections: use at most %d", len(w.Connections), MaxConnections), "connections")
		return
	}
	for i := range w.Connections {
		c := &w.Connections[i]
		fail := func(field string, err error) {
			w.doc.Add(fmt.Sprintf("connection %d: ", i+1), err, "connections", i, field)
		}
		if c.Application == "" {
			fail("application", errors.New(`give application, a pattern such as "application_*"`))
		} else if _, err := path.Match(c.Application, ""); err != nil {
			fail("application", fmt.Errorf("application: pattern %q: use * ? and [abc]", c.Application))
		}
		if c.Direction == "" {
			c.Direction = "both"
		}
		if !slices.Contains([]string{"read", "write", "both"}, c.Direction) {
			fail("direction", fmt.Errorf("direction %q: use read, write or both", c.Direction))
		}
		if c.Limit == 0 {
			fail("limit", errors.New("give limit, the bytes per second of one connection"))
		} else if err := checkLimit(c.Limit); err != nil {
			fail("limit", err)
		}
	}
}

// checkName checks the name of an entry in processes.
func checkName(name string) error {
	if name == "" || len(name) > 64 {
		return fmt.Errorf("name %q: give 1 to 64 letters, digits, '-', '_' or '.'", name)
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)) {
			return fmt.Errorf("name %q: use letters, digits, '-', '_' and '.'", name)
		}
	}
	return nil
}

// checkLimit checks a limit; 0 means no limit.
func checkLimit(l settings.Bytes) error {
	if l != 0 && (l < device.MinLimit || l > limit.MaxRate) {
		return fmt.Errorf("limit %d: use %d (64KiB) to %d bytes a second", l, device.MinLimit, int64(limit.MaxRate))
	}
	return nil
}

// Matches reports whether a process belongs to the entry. uid is the id of the entry's user, if it
// has one.
func (p *Process) Matches(uid, processUID uint32, command, cgroup string) bool {
	if p.User != "" && uid != processUID {
		return false
	}
	if p.Command != "" && p.Command != command {
		return false
	}
	return p.Cgroup == "" || cgroup == p.Cgroup || strings.HasPrefix(cgroup, p.Cgroup+"/")
}

// processRule returns the rule of a flow of processes.
func (w *Weights) processRule(flow string) (device.Rule, bool) {
	name, ok := strings.CutPrefix(flow, ProcessFlow)
	if !ok {
		return device.Rule{}, false
	}
	for _, p := range w.Processes {
		if p.Name == name {
			mode, _ := device.ParseMode(p.Mode) // checked on load
			return device.Rule{Weight: p.Weight, Mode: mode, Limit: int64(p.Limit)}, true
		}
	}
	return device.Rule{}, false
}
