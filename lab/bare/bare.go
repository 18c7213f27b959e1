// Package bare runs a bare Debian machine: a system with nothing but Debian's essential packages, with processes, mounts
// and a network of its own.
//
// A guide to an installation is only right if it works on a machine without anything else. A virtual machine would be
// slow, and needs an image. So the system is a folder in the project's cache (package debian), below a layer in memory
// that has the machine's changes. The namespaces end with their first process, and all their processes and mounts with
// them, however the run ends. The kernel, /sys and /dev are those of the real machine. There is no systemd.
package bare

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"penstock/lab/debian"
	"penstock/lab/ledger"
	"penstock/lab/process"
)

// Later is the folder of the machine with Debian's packages of Java, which are not installed yet.
const Later = "/" + debian.Later

// startPatience bounds the start of a machine.
const startPatience = time.Minute

// Fetch makes sure that the system is in the cache, and returns its folder. If it is not, Fetch needs root and a Debian
// machine with apt-get.
func Fetch(ctx context.Context, cacheDir string, progress func(format string, args ...any)) (string, error) {
	dir, err := filepath.Abs(filepath.Join(cacheDir, "bare-debian"))
	if err != nil {
		return "", err
	}
	begin, fetched := time.Now(), false
	err = debian.Make(ctx, dir, "", func(p *debian.Packages, into string) error {
		fetched = true
		progress("a bare Debian: fetching its packages (100 MB with their lists) into %s, once", dir)
		return p.Root(ctx, into, []string{"passwd"}, []string{"default-jre-headless"})
	})
	if err != nil {
		return "", fmt.Errorf("bare: make a bare Debian: %w", err)
	}
	if fetched {
		progress("a bare Debian: made in %.0f s", time.Since(begin).Seconds())
	}
	return dir, nil
}

// Options are the options of a machine.
type Options struct {
	Book    *ledger.Ledger
	Dir     string            // a folder for the machine's mount points and logs
	Root    string            // from Fetch
	Network string            // path of the machine's network namespace
	Folders map[string]string // folders of the real machine, by their paths in this one
}

// Machine is a running machine.
type Machine struct {
	o      Options
	holder *process.Process
}

// hostName is the machine's name.
const hostName = "bare"

// prepare makes the machine's mounts. Its arguments are the system, the folder, and pairs of folders.
const prepare = `set -e
system="$1" dir="$2"
shift 2
mount -t tmpfs -o size=2G,mode=755 tmpfs "$dir/changes"
mkdir "$dir/changes/upper" "$dir/changes/work"
chmod 755 "$dir/changes/upper"
mount -t overlay overlay -o "lowerdir=$system,upperdir=$dir/changes/upper,workdir=$dir/changes/work" "$dir/root"
mount -t proc proc "$dir/root/proc"
mount --rbind /sys "$dir/root/sys"
mount --rbind /dev "$dir/root/dev"
mount -t tmpfs -o size=64M,mode=755 tmpfs "$dir/root/run"
while [ $# -gt 0 ]; do
  mkdir -p "$dir/root$1"
  mount --bind "$2" "$dir/root$1"
  shift 2
done
echo ` + hostName + ` > /proc/sys/kernel/hostname
printf '127.0.0.1 localhost ` + hostName + `\n' > "$dir/root/etc/hosts"
echo ready
exec sleep infinity`

// Start starts a machine, which needs root.
func Start(ctx context.Context, o Options) (*Machine, error) {
	m := &Machine{o: o}
	for _, d := range []string{"changes", "root"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	argv := []string{"nsenter", "--net=" + o.Network, "--", "unshare", "--mount", "--uts", "--propagation", "slave", "--",
		"sh", "-c", prepare, "prepare", o.Root, o.Dir}
	for _, inside := range slices.Sorted(maps.Keys(o.Folders)) {
		argv = append(argv, inside, o.Folders[inside])
	}
	var err error
	m.holder, err = process.Start(process.Options{Book: o.Book, Name: "the bare machine", Log: m.log("machine"), Dir: "/", OwnPIDs: true}, argv...)
	if err != nil {
		return nil, fmt.Errorf("bare: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if _, err := m.holder.Find(ctx, regexp.MustCompile(`(?m)^ready$`)); err != nil {
		m.Stop()
		return nil, fmt.Errorf("bare: %w", err)
	}
	return m, nil
}

func (m *Machine) log(name string) string { return filepath.Join(m.o.Dir, name+".log") }

// args returns the command line that runs a script of bash on the machine, as root.
func (m *Machine) args(script string) []string {
	return []string{"nsenter", "--target=" + strconv.Itoa(m.holder.PID()), "--net", "--mount", "--uts", "--pid", "--",
		"chroot", filepath.Join(m.o.Dir, "root"), "/usr/bin/env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "/bin/bash", "-ec", "cd /\n" + script}
}

// Run runs a script of bash and returns what it prints, also if it fails.
func (m *Machine) Run(ctx context.Context, script string) (string, error) {
	argv := m.args(script)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.WaitDelay = "/", 5*time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Start starts a server by a script of bash. It ends with the machine. Its output is in a log of this name.
func (m *Machine) Start(name, script string) (*process.Process, error) {
	return process.Start(process.Options{Book: m.o.Book, Name: name, Log: m.log(name), Dir: "/"}, m.args(script)...)
}

// Stop ends the machine with all its processes and mounts.
func (m *Machine) Stop() { m.holder.Kill() }
