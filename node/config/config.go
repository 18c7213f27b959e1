// Package config reads the node daemon's two YAML files: its settings, which are read once, and
// the weights, which are reloaded while it runs.
//
// Both files are decoded strictly. An unknown field is an error with its position: to ignore a
// misspelt setting is worse than not to start. An error lists all mistakes of a file, with line and
// column. A weights file with mistakes never replaces a valid one.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"os/user"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/core/policy"
	"penstock/node/device"
	"penstock/node/profile"
	"penstock/settings"
	"penstock/wire/orchestrator"
	"penstock/wire/web"
)

// maxFile is the maximum size of either file, in bytes.
const maxFile = 1 << 20

// Node is the settings file.
type Node struct {
	// Socket is the Unix socket that agents connect to.
	Socket string `yaml:"socket"`
	// SocketMode holds the socket's permissions, octal; default 0660.
	SocketMode string `yaml:"socket_mode"`
	// SocketGroup is the group of the socket; default: the daemon's own.
	SocketGroup string `yaml:"socket_group"`
	// Loopback is an address for agents on JVMs without Unix sockets, 127.0.0.1 and a port; default
	// "off".
	Loopback string `yaml:"loopback"`
	// Users may connect in addition to root and the daemon's own user: names or ids, usually the
	// user that DataNodes run as.
	Users []string `yaml:"users"`
	// TaskUsers may connect only as tasks and executors: names or ids, or "*" for all users who
	// can reach the socket.
	TaskUsers []string `yaml:"task_users"`
	// DataDirs are the data directories in which the daemon may open files. If the list is empty, a
	// DataNode may register any directory that belongs to its own user.
	DataDirs []string `yaml:"data_dirs"`
	// LocalDirs are the YARN local directories in which the daemon may open files for tasks,
	// executors and NodeManagers; a process may name one of these directories or any directory
	// below one of them. If the list is empty, the process may name any directory that belongs to
	// its own user.
	LocalDirs []string `yaml:"local_dirs"`
	// Listen is the address of the HTTP server for /metrics, /status, /-/healthy and /-/ready;
	// default 127.0.0.1:9707; "off": no server; unix:PATH: a Unix socket.
	Listen string `yaml:"listen"`
	// ListenToken is a file with a token that readers of /metrics and /status must send; empty: they need none.
	ListenToken string `yaml:"listen_token"`
	// Mode is off, observe (default) or enforce; the weights file may override it while the
	// daemon runs.
	Mode string `yaml:"mode"`
	// Weights is the path of the weights file; without it every application has weight 1.
	Weights string `yaml:"weights"`
	// KillSwitch is a path: while a file exists there, nothing is governed, regardless of other
	// settings; default: the socket's path with ".off" at the end.
	KillSwitch string `yaml:"kill_switch"`
	// Devices holds the settings of single devices, by kernel name; Device applies to all devices
	// that are not in Devices.
	Device  Device            `yaml:"device"`
	Devices map[string]Device `yaml:"devices"`
	// Network limits what the machine may send. Without it, sent bytes are counted and nothing is
	// held back.
	Network *Network `yaml:"network"`
	// Foreign is "users" (default): foreign I/O is attributed to processes and cgroups by BPF
	// programs, if the kernel and the daemon's rights allow it. With "totals", only each device's
	// total foreign I/O is known.
	Foreign string `yaml:"foreign"`
	// FlowMetrics selects the flows that have series in /metrics: "used" (default), those that are used or were used in
	// the last 10 minutes; "all", those that a device remembers; "off", none.
	FlowMetrics string `yaml:"flow_metrics"`
	// Identity determines how claims are checked.
	Identity Identity `yaml:"identity"`
	// Broker holds the settings for the cluster's brokers.
	Broker *Broker `yaml:"broker"`
	// Storage names the disk of a storage server on this machine.
	Storage *Storage `yaml:"storage"`
	// Control determines whether processes and connections without an agent may be held.
	Control *Control `yaml:"control"`
	// Orchestrators names the applications of containers of Kubernetes and Mesos.
	Orchestrators *Orchestrators `yaml:"orchestrators"`

	doc      *settings.Document
	file     string // its absolute path
	base     string // directory of the file: other paths are relative to it
	profiles map[string]*profile.Profile

	peers []string // algorithms that LoadNode's caller can create
}

// LoadNode reads the settings file. peers are algorithms that the caller can create in addition to
// the daemon's own, for comparison. The error wraps a settings.Mistakes with all mistakes of the
// file.
func LoadNode(file string, peers ...string) (*Node, error) {
	n, err := load(file, peers)
	if err == nil {
		err = n.mistakes(file)
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}

// CheckNode does what LoadNode does. In addition it looks up the users and the group on this
// machine, and reads the weights file, so that one error contains all mistakes of both files.
func CheckNode(file string, peers ...string) (*Node, error) {
	n, err := load(file, peers)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	n.lookUp()
	var errs []error
	if err := n.mistakes(file); err != nil {
		errs = append(errs, fmt.Errorf("settings: %w", err))
	}
	if !n.doc.Wrong("weights") {
		if _, err := LoadWeights(n.Weights); err != nil {
			errs = append(errs, fmt.Errorf("weights: %w", err))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return n, nil
}

// load reads a settings file and checks it; the mistakes found are in the result's doc.
func load(file string, peers []string) (*Node, error) {
	n := &Node{peers: peers}
	var err error
	if n.doc, err = settings.Load(file, maxFile, n); err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	n.file, n.base = abs, filepath.Dir(abs)
	n.validate()
	return n, nil
}

// File returns the absolute path of the settings file.
func (n *Node) File() string { return n.file }

func (n *Node) mistakes(file string) error {
	if err := n.doc.Err(); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// lookUp looks up the users and the group on this machine.
func (n *Node) lookUp() {
	for i, name := range n.Users {
		if _, err := UserID(name); err != nil {
			n.doc.Add("users: ", err, "users", i)
		}
	}
	for i, name := range n.TaskUsers {
		if _, err := UserID(name); name != "*" && err != nil {
			n.doc.Add("task_users: ", err, "task_users", i)
		}
	}
	if n.SocketGroup != "" {
		if _, err := user.LookupGroup(n.SocketGroup); err != nil {
			n.doc.Add("", fmt.Errorf("socket_group %q: this machine has no such group", n.SocketGroup), "socket_group")
		}
	}
}

// UserID returns the id of a user; name may be the user's name or its id.
func UserID(name string) (uint32, error) {
	if id, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(id), nil
	}
	u, err := user.Lookup(name)
	if errors.As(err, new(user.UnknownUserError)) {
		return 0, fmt.Errorf("%q: this machine has no such user", name)
	}
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(id), err
}

// maxSocketPath is the maximum length of a Unix socket's path, in bytes.
const maxSocketPath = 107

// validate fills in the defaults and adds the mistakes that it finds to those in doc.
func (n *Node) validate() {
	fail := func(format string, args ...any) { n.doc.Add("", fmt.Errorf(format, args...)) }
	if n.Socket == "" {
		fail("socket: give the path of the Unix socket for agents, such as /run/penstock/agent.sock")
	}
	if n.SocketMode == "" {
		n.SocketMode = "0660"
	}
	if m, err := strconv.ParseUint(n.SocketMode, 8, 32); err != nil || m > 0o777 {
		fail("socket_mode %q: use octal permissions such as \"0660\"", n.SocketMode)
	}
	if n.Listen == "" {
		n.Listen = "127.0.0.1:9707"
	}
	if n.Listen != "off" {
		n.doc.Add("", checkListen(n.Listen))
	}
	if n.Loopback == "" {
		n.Loopback = "off"
	}
	if n.Loopback != "off" {
		n.doc.Add("", checkLoopback(n.Loopback), "loopback")
	}
	if n.Mode == "" {
		n.Mode = "observe"
	}
	if _, err := device.ParseMode(n.Mode); err != nil {
		n.doc.Add("", err)
	}
	if n.Foreign == "" {
		n.Foreign = "users"
	}
	if n.Foreign != "users" && n.Foreign != "totals" {
		fail("foreign %q: use users or totals", n.Foreign)
	}
	if n.FlowMetrics == "" {
		n.FlowMetrics = "used"
	}
	if !slices.Contains([]string{"used", "all", "off"}, n.FlowMetrics) {
		fail("flow_metrics %q: use used, all or off", n.FlowMetrics)
	}
	if n.KillSwitch == "" {
		n.KillSwitch = n.Socket + ".off"
	}
	for _, p := range []*string{&n.Socket, &n.Weights, &n.KillSwitch, &n.ListenToken} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(n.base, *p)
		}
	}
	if len(n.Socket) > maxSocketPath {
		fail("socket %s has %d bytes: the path of a Unix socket has at most %d", n.Socket, len(n.Socket), maxSocketPath)
	}
	n.absolute(n.DataDirs, "data_dirs")
	n.absolute(n.LocalDirs, "local_dirs")
	n.loadProfiles()
	if _, err := n.config("", true, n.profiles[n.Device.Profile]); err != nil {
		n.doc.Add("device: ", err, "device")
	}
	for _, name := range slices.Sorted(maps.Keys(n.Devices)) {
		if _, err := n.config(name, true, n.profiles[n.Devices[name].Profile]); err != nil {
			n.doc.Add("device "+name+": ", err, "devices", name)
		}
	}
	if _, err := n.networkConfig(); err != nil {
		n.doc.Add("network: ", err, "network")
	}
	if _, err := n.IdentitySettings(); err != nil {
		n.doc.Add("identity: ", err, "identity")
	}
	n.validateBroker()
	n.validateStorage()
	n.validateControl()
	n.validateOrchestrators()
}

// absolute checks the folders of a setting.
func (n *Node) absolute(dirs []string, path ...any) {
	for i, dir := range dirs {
		if !filepath.IsAbs(dir) {
			n.doc.Add(fmt.Sprintf("%s: ", path[len(path)-1]), fmt.Errorf("%q: give an absolute path", dir), append(path[:len(path):len(path)], i)...)
		}
	}
}

// checkListen checks an address to listen at.
func checkListen(address string) error {
	if err := web.CheckAddress(address); err != nil {
		return fmt.Errorf("listen %w, or \"off\"", err)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil || strings.HasPrefix(address, web.UnixPrefix) {
		return nil
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("listen %q: the port must be a number from 0 to 65535 (0: any that is free)", address)
	}
	return nil
}

// Weights is the weights file: rules, matched from the top, first match wins.
type Weights struct {
	// Mode overrides the mode in the settings file.
	Mode string `yaml:"mode"`
	// Default is the weight of flows that no rule matches; default 1.
	Default int     `yaml:"default"`
	Queues  []Queue `yaml:"queues" entry:"a queue"`
	Rules   []Rule  `yaml:"rules" entry:"a rule"`
	// Services are named services: clients of HDFS outside of containers that have flows of their own.
	Services []Service `yaml:"services" entry:"a service"`
	// Processes are processes without an agent; they are held only if the settings have control.
	Processes []Process `yaml:"processes" entry:"an entry of processes"`
	// Connections limit connections between DataNodes and containers, under the same condition.
	Connections []Connection `yaml:"connections" entry:"an entry of connections"`

	doc    *settings.Document       // nil without a file
	places map[string]*device.Queue // the rules' queues, by path
}

// Rule matches flows by shell patterns (* ? [abc]). Application matches only ids of applications, of YARN,
// Spark, Kubernetes and Mesos. Flow matches the name of any flow. If both are given, both must
// match.
type Rule struct {
	Application string         `yaml:"application"`
	Flow        string         `yaml:"flow"`
	Queue       string         `yaml:"queue"`  // queue in which the weight counts; default none
	Weight      int            `yaml:"weight"` // 1..1,000,000; default the file's default
	Mode        string         `yaml:"mode"`   // default enforce: the daemon's own mode applies
	Limit       settings.Bytes `yaml:"limit"`  // per second, at one device; default none
	// Reserve is the guaranteed rate of each flow on one device; default none.
	Reserve settings.Reserve `yaml:"reserve"`
	// Strict means that other flows cannot use what this one does not use of its Reserve.
	Strict bool `yaml:"strict"`
	// Latency is the goal of the p99 of each flow's small reads on one device, 10 ms to 10 s; default none.
	Latency time.Duration `yaml:"latency"`
	// Bandwidth makes the MB/s that an application's containers on this machine have requested of Kubernetes or Mesos its
	// weight. An application that has requested none has Weight.
	Bandwidth bool `yaml:"bandwidth"`
}

// MaxRules is the maximum number of rules in a weights file.
const MaxRules = 10_000

// LoadWeights reads and checks a weights file; an empty name returns the defaults. The error wraps
// a settings.Mistakes with all mistakes of the file.
func LoadWeights(file string) (*Weights, error) {
	w := &Weights{}
	if file == "" {
		w.Default = 1
		return w, nil
	}
	var err error
	if w.doc, err = settings.Load(file, maxFile, w); err != nil {
		return nil, err
	}
	w.validate()
	if err := w.doc.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return w, nil
}

const maxWeight = 1_000_000

// validate fills in the defaults and adds the mistakes that it finds to those in doc.
func (w *Weights) validate() {
	if w.Mode != "" {
		if _, err := device.ParseMode(w.Mode); err != nil {
			w.doc.Add("", err, "mode")
		}
	}
	if !w.doc.Has("default") {
		w.Default = 1
	}
	if w.Default < 1 || w.Default > maxWeight {
		w.doc.Add("", fmt.Errorf("default: weight %d: use 1 to %d", w.Default, maxWeight))
		w.Default = 1 // the mistake is reported once
	}
	w.validateServices()
	w.validateProcesses()
	w.validateConnections()
	if len(w.Rules) > MaxRules {
		w.doc.Add("", fmt.Errorf("%d rules: use at most %d", len(w.Rules), MaxRules), "rules")
		return
	}
	w.place()
	for i := range w.Rules {
		r := &w.Rules[i]
		if !w.doc.Has("rules", i, "weight") {
			r.Weight = w.Default
		}
		if r.Mode == "" {
			r.Mode = "enforce"
		}
		fail := func(format string, args ...any) {
			w.doc.Add(fmt.Sprintf("rule %d: ", i+1), fmt.Errorf(format, args...), "rules", i)
		}
		if r.Application == "" && r.Flow == "" {
			fail("give application or flow, a pattern such as \"application_*\"")
		}
		for _, p := range []struct{ field, pattern string }{{"application", r.Application}, {"flow", r.Flow}} {
			if _, err := path.Match(p.pattern, ""); err != nil {
				fail("%s: pattern %q: use * ? and [abc]", p.field, p.pattern)
			}
		}
		if r.Weight < 1 || r.Weight > maxWeight {
			fail("weight %d: use 1 to %d", r.Weight, maxWeight)
		}
		if _, err := device.ParseMode(r.Mode); err != nil {
			fail("%v", err)
		}
		if err := checkLimit(r.Limit); err != nil {
			fail("%v", err)
		}
		if err := policy.CheckLatency(r.Latency); err != nil {
			fail("%v", err)
		}
		promise := r.Reserve.Rate(r.Strict)
		if err := cmp.Or(promise.Validate(), promise.Within(int64(r.Limit))); err != nil {
			fail("%v", err)
		}
	}
}

// Warnings returns a line for each rule and each service that never has an effect, with its position.
func (w *Weights) Warnings() []string {
	var p policy.Policy
	for _, r := range w.Rules {
		// A pattern of Application matches only applications, just as a tag pattern matches only
		// flows with tags.
		p.Rules = append(p.Rules, policy.Rule{Flow: r.Flow, Tag: r.Application})
	}
	var all []string
	for _, one := range p.Warnings() {
		line, column := w.doc.Place(fmt.Sprintf("rules[%d]", one.Rule))
		all = append(all, settings.Mistake{Line: line, Column: column, What: one.Against(fmt.Sprintf("the rule on line %d", w.doc.Line("rules", one.By)))}.String())
	}
	return append(all, w.serviceWarnings()...)
}

// UsesBandwidth reports whether a rule makes requested bandwidth a weight.
func (w *Weights) UsesBandwidth() bool {
	return slices.ContainsFunc(w.Rules, func(r Rule) bool { return r.Bandwidth })
}

// Policy returns the rule of a flow: that of its processes, or else the first that matches.
func (w *Weights) Policy(flow string) device.Rule { return w.PolicyWith(flow, nil) }

// PolicyWith returns the rule of a flow, if applications have requested so many MB/s.
func (w *Weights) PolicyWith(flow string, requested map[string]int64) device.Rule {
	if r, ok := w.processRule(flow); ok {
		return r
	}
	for i, r := range w.Rules {
		if r.matches(flow) {
			mode, _ := device.ParseMode(r.Mode) // checked on load
			weight := r.Weight
			if mb := requested[flow]; r.Bandwidth && mb > 0 {
				weight = int(min(mb, maxWeight))
			}
			return device.Rule{Weight: weight, Mode: mode, Limit: int64(r.Limit), Reserve: r.Reserve.Rate(r.Strict), Order: i, Latency: r.Latency, Queue: w.places[r.Queue]}
		}
	}
	return device.Rule{Weight: w.Default, Mode: device.Enforce}
}

func (r *Rule) matches(flow string) bool {
	if r.Application != "" {
		// Application ids of YARN, of a standalone Spark master, of Kubernetes and of Mesos.
		if !strings.HasPrefix(flow, "application_") && !strings.HasPrefix(flow, "app-") && !orchestrator.IsApplication(flow) {
			return false
		}
		if !policy.Match(r.Application, flow) {
			return false
		}
	}
	if r.Flow != "" {
		if !policy.Match(r.Flow, flow) {
			return false
		}
	}
	return true
}
