// Package config reads the node daemon's two YAML files: its settings, which
// are read once, and the weights, which are reloaded while it runs.
//
// Both are decoded strictly: an unknown field is an error with its line, since
// a misspelt setting that is silently ignored is worse than a daemon that does
// not start. A weights file that does not parse never replaces one that did.
package config

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"penstock/core/limit"
	"penstock/node/device"
	"penstock/node/profile"
	"penstock/settings"
)

// maxFile bounds either file, in bytes.
const maxFile = 1 << 20

// Node is the settings file.
type Node struct {
	// Socket is the Unix socket that agents connect to.
	Socket string `yaml:"socket"`
	// SocketMode is its permissions, octal; default 0660.
	SocketMode string `yaml:"socket_mode"`
	// SocketGroup is the group that it belongs to; default the daemon's own.
	SocketGroup string `yaml:"socket_group"`
	// Users may connect beside root and the daemon's own user: names or ids,
	// in general the user that DataNodes run as.
	Users []string `yaml:"users"`
	// TaskUsers may connect as tasks and executors only: names or ids, or "*" for
	// everybody who can reach the socket.
	TaskUsers []string `yaml:"task_users"`
	// DataDirs are the data directories whose files the daemon may open. If it
	// is empty, an agent registers its own, which must belong to its user.
	DataDirs []string `yaml:"data_dirs"`
	// LocalDirs are the YARN local directories whose files the daemon may open for
	// tasks, executors and NodeManagers, which may name any directory below them. If
	// it is empty, such a directory must belong to the peer's user.
	LocalDirs []string `yaml:"local_dirs"`
	// Listen is the address of /metrics, /-/healthy and /-/ready; default
	// 127.0.0.1:9707; "off" for none.
	Listen string `yaml:"listen"`
	// Mode is off, observe (default) or enforce; the weights file may set it
	// again while the daemon runs.
	Mode string `yaml:"mode"`
	// Weights is the path of the weights file; without one every application
	// has weight 1.
	Weights string `yaml:"weights"`
	// KillSwitch is a path: while a file is there nothing is governed, whatever
	// else is set; default the socket's path with ".off" at the end.
	KillSwitch string `yaml:"kill_switch"`
	// Device holds for every device; Devices, by kernel name, for single ones.
	Device  Device            `yaml:"device"`
	Devices map[string]Device `yaml:"devices"`
	// Network is what the machine may send. Without it nobody is held back in
	// sending, and it is accounted for.
	Network *Network `yaml:"network"`
	// Foreign is "users" (default): foreign I/O is shown by process and cgroup, with
	// BPF programs where the kernel and the daemon's rights allow it; or "totals".
	Foreign string `yaml:"foreign"`
	// Identity says how claims are checked.
	Identity Identity `yaml:"identity"`
	// Broker says where the cluster's brokers are.
	Broker *Broker `yaml:"broker"`

	base     string // directory of the file: other paths are relative to it
	profiles map[string]*profile.Profile

	peers []string // algorithms that LoadNode's caller makes
}

// LoadNode reads the settings file. peers are algorithms beside the daemon's own that the
// caller can make, to compare them with it.
func LoadNode(file string, peers ...string) (*Node, error) {
	n := &Node{peers: peers}
	if err := settings.Load(file, maxFile, n); err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	n.base = filepath.Dir(abs)
	if err := n.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}

func (n *Node) validate() error {
	var errs []error
	if n.Socket == "" {
		errs = append(errs, errors.New("socket: give the path of the Unix socket for agents, such as /run/penstock/agent.sock"))
	}
	if n.SocketMode == "" {
		n.SocketMode = "0660"
	}
	if m, err := strconv.ParseUint(n.SocketMode, 8, 32); err != nil || m > 0o777 {
		errs = append(errs, fmt.Errorf("socket_mode %q: use octal permissions such as \"0660\"", n.SocketMode))
	}
	if n.Listen == "" {
		n.Listen = "127.0.0.1:9707"
	}
	if n.Mode == "" {
		n.Mode = "observe"
	}
	if _, err := device.ParseMode(n.Mode); err != nil {
		errs = append(errs, err)
	}
	if n.Foreign == "" {
		n.Foreign = "users"
	}
	if n.Foreign != "users" && n.Foreign != "totals" {
		errs = append(errs, fmt.Errorf("foreign %q: use users or totals", n.Foreign))
	}
	if n.KillSwitch == "" {
		n.KillSwitch = n.Socket + ".off"
	}
	for _, p := range []*string{&n.Socket, &n.Weights, &n.KillSwitch} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(n.base, *p)
		}
	}
	for setting, dirs := range map[string][]string{"data_dirs": n.DataDirs, "local_dirs": n.LocalDirs} {
		for _, d := range dirs {
			if !filepath.IsAbs(d) {
				errs = append(errs, fmt.Errorf("%s: %q: give an absolute path", setting, d))
			}
		}
	}
	errs = append(errs, n.loadProfiles())
	if _, err := n.DeviceConfig("", true); err != nil {
		errs = append(errs, err)
	}
	for name := range n.Devices {
		if _, err := n.DeviceConfig(name, true); err != nil {
			errs = append(errs, err)
		}
	}
	if _, err := n.NetworkConfig(); err != nil {
		errs = append(errs, err)
	}
	if _, err := n.IdentitySettings(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, n.validateBroker())
	return errors.Join(errs...)
}

// Weights is the weights file: rules, matched from the top, first match wins.
type Weights struct {
	// Mode overrides the settings file's.
	Mode string `yaml:"mode"`
	// Default is the weight of flows that no rule matches; default 1.
	Default int     `yaml:"default"`
	Queues  []Queue `yaml:"queues"`
	Rules   []Rule  `yaml:"rules"`

	places map[string]*device.Queue // by the queue's path
}

// Rule matches flows by shell patterns (* ? [abc]). Application matches only
// application ids, YARN's and standalone Spark's, Flow any flow's name; both given must both match.
type Rule struct {
	Application string         `yaml:"application"`
	Flow        string         `yaml:"flow"`
	Queue       QueuePath      `yaml:"queue"`  // that the weight counts in; default none
	Weight      int            `yaml:"weight"` // 1..1,000,000; default the file's default
	Mode        string         `yaml:"mode"`   // default enforce: the daemon's own mode holds
	Limit       settings.Bytes `yaml:"limit"`  // a second, at one device; default none
}

// MaxRules bounds a weights file.
const MaxRules = 10_000

// LoadWeights reads and checks a weights file; an empty name gives the defaults.
func LoadWeights(file string) (*Weights, error) {
	w := &Weights{}
	if file != "" {
		if err := settings.Load(file, maxFile, w); err != nil {
			return nil, err
		}
	}
	if err := w.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return w, nil
}

const maxWeight = 1_000_000

func (w *Weights) validate() error {
	var errs []error
	if w.Mode != "" {
		if _, err := device.ParseMode(w.Mode); err != nil {
			errs = append(errs, err)
		}
	}
	if w.Default == 0 {
		w.Default = 1
	}
	if w.Default < 1 || w.Default > maxWeight {
		errs = append(errs, fmt.Errorf("default: weight %d: use 1 to %d", w.Default, maxWeight))
	}
	if len(w.Rules) > MaxRules {
		errs = append(errs, fmt.Errorf("%d rules: use at most %d", len(w.Rules), MaxRules))
	}
	errs = append(errs, w.place())
	for i := range w.Rules {
		r := &w.Rules[i]
		if r.Weight == 0 {
			r.Weight = w.Default
		}
		if r.Mode == "" {
			r.Mode = "enforce"
		}
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("rule %d: %w", i+1, fmt.Errorf(format, args...)))
		}
		if r.Application == "" && r.Flow == "" {
			fail("give application or flow, a pattern such as \"application_*\"")
		}
		for _, p := range []string{r.Application, r.Flow} {
			if _, err := path.Match(p, ""); err != nil {
				fail("pattern %q: %v", p, err)
			}
		}
		if r.Weight < 1 || r.Weight > maxWeight {
			fail("weight %d: use 1 to %d", r.Weight, maxWeight)
		}
		if _, err := device.ParseMode(r.Mode); err != nil {
			fail("%v", err)
		}
		if r.Limit != 0 && (r.Limit < device.MinLimit || r.Limit > limit.MaxRate) {
			fail("limit %d: use %d to %d bytes a second", r.Limit, device.MinLimit, int64(limit.MaxRate))
		}
	}
	return errors.Join(errs...)
}

// Policy finds the rule of a flow: the first that matches.
func (w *Weights) Policy(flow string) device.Rule {
	for _, r := range w.Rules {
		if r.matches(flow) {
			mode, _ := device.ParseMode(r.Mode) // checked on load
			return device.Rule{Weight: r.Weight, Mode: mode, Limit: int64(r.Limit), Queue: w.places[r.Queue.path]}
		}
	}
	return device.Rule{Weight: w.Default, Mode: device.Enforce}
}

func (r *Rule) matches(flow string) bool {
	if r.Application != "" {
		// YARN's, and a standalone Spark master's.
		if !strings.HasPrefix(flow, "application_") && !strings.HasPrefix(flow, "app-") {
			return false
		}
		if ok, _ := path.Match(r.Application, flow); !ok {
			return false
		}
	}
	if r.Flow != "" {
		if ok, _ := path.Match(r.Flow, flow); !ok {
			return false
		}
	}
	return true
}
