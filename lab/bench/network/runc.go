package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"penstock/lab/ledger"
	"penstock/ops/network"
)

// Runc is the name of the set-up whose containers are made by runc, as Docker and containerd make theirs.
const Runc = "runc"

// realContainers returns bridge-nat with containers of runc. It shows whether the network of processes that are only in
// network namespaces is that of containers. dir is a folder for the containers.
func realContainers(book *ledger.Ledger, dir string) network.SetUp {
	all := network.SetUps()
	setUp := all[slices.IndexFunc(all, func(s network.SetUp) bool { return s.Name == network.BridgeNAT })]
	setUp.Name, setUp.About = Runc, "the same, with containers of runc"
	r := &containers{book: book, dir: filepath.Join(dir, "runc")}
	setUp.Launch = r.launch
	return setUp
}

// containers makes containers, one after another.
type containers struct {
	book  *ledger.Ledger
	dir   string
	count int
}

// hostFolders are mounted in containers for programs that are not static, such as tests with the race detector.
var hostFolders = []string{"/lib", "/lib64", "/usr"}

type mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options,omitempty"`
}

// launch starts the command in a container. The container has all namespaces but those of users and PIDs.
func (c *containers) launch(cmd *exec.Cmd) (pid int, end func() error, err error) {
	runc, err := exec.LookPath("runc")
	if err != nil {
		return 0, nil, fmt.Errorf("runc is missing: install the package runc, or leave out the rows *-%s", Runc)
	}
	name := fmt.Sprintf("penstock-lab-%d-%d", os.Getpid(), c.count)
	c.count++
	bundle := filepath.Join(c.dir, name)
	if err := c.write(cmd, bundle, name); err != nil {
		return 0, nil, fmt.Errorf("container %s: %w", name, err)
	}
	groups, err := cgroups(name)
	if err != nil {
		return 0, nil, err
	}
	var changes []ledger.ID
	for _, g := range groups {
		id, err := c.book.Cgroup(g)
		if err != nil {
			return 0, nil, err
		}
		changes = append(changes, id)
	}
	state := filepath.Join(c.dir, "state")
	end = func() error {
		out, err := exec.Command(runc, "--root", state, "delete", "--force", name).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("delete container %s: %w: %s", name, err, strings.TrimSpace(string(out)))
		}
		return errors.Join(err, c.book.Undo(changes...), os.RemoveAll(bundle))
	}
	file := filepath.Join(bundle, "pid")
	run := exec.Command(runc, "--root", state, "run", "--detach", "--pid-file", file, "--bundle", bundle, name)
	run.Stdin, run.Stdout, run.Stderr = cmd.Stdin, cmd.Stdout, cmd.Stderr
	if err := run.Run(); err != nil {
		return 0, nil, errors.Join(fmt.Errorf("run container %s: %w", name, err), end())
	}
	text, err := os.ReadFile(file)
	if err == nil {
		pid, err = strconv.Atoi(string(text))
	}
	if err != nil {
		return 0, nil, errors.Join(err, end())
	}
	return pid, end, nil
}

// write writes a container's bundle: its configuration and its file system, which has the program and nothing else.
func (c *containers) write(cmd *exec.Cmd, bundle, name string) error {
	root := filepath.Join(bundle, "rootfs")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := copyProgram(cmd.Path, filepath.Join(root, "worker")); err != nil {
		return err
	}
	var environment []string
	host := os.Environ()
	for _, e := range cmd.Env {
		if !slices.Contains(host, e) {
			environment = append(environment, e)
		}
	}
	mounts := []mount{{Destination: "/proc", Type: "proc", Source: "proc"}}
	for _, folder := range hostFolders {
		if _, err := os.Stat(folder); err == nil {
			mounts = append(mounts, mount{folder, "bind", folder, []string{"rbind", "ro"}})
		}
	}
	type object = map[string]any
	text, err := json.Marshal(object{
		"ociVersion": "1.0.2",
		"process":    object{"user": object{"uid": 0, "gid": 0}, "args": []string{"/worker"}, "env": environment, "cwd": "/"},
		"root":       object{"path": "rootfs", "readonly": true},
		"mounts":     mounts,
		"linux": object{"cgroupsPath": "/" + name, "namespaces": []object{
			{"type": "network"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o644)
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// cgroups returns the folders in which runc may make a cgroup of that name: one for each mounted hierarchy.
func cgroups(name string) (all []string, err error) {
	for _, pattern := range []string{"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/*/cgroup.procs"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			all = append(all, filepath.Join(filepath.Dir(f), name))
		}
		if len(found) > 0 { // with version 2 only, the folders below the first one are cgroups
			return all, nil
		}
	}
	return nil, errors.New("no cgroups are mounted below /sys/fs/cgroup: mount them")
}
