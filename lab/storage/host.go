package storage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/lab/ledger"
	"penstock/lab/netns"
	"penstock/lab/process"
)

// patience bounds the start of a host or of a server, and each command.
const patience = time.Minute

// Host is a machine with its own network, mounts and name.
type Host struct {
	Name string // host name; the hosts know each other by it

	address string
	book    *ledger.Ledger
	dir     string // folder of its files and logs
	holder  *process.Process
	by      []string // command that starts its programs; nil: they are started directly
}

// Urgent returns the host, with real-time priority for the programs that are started through the returned value. They get a CPU before
// all other programs, as on a machine with CPUs of its own.
func (h *Host) Urgent() *Host {
	urgent := *h
	urgent.by = []string{"chrt", "--rr", "1"}
	return &urgent
}

// Hosts makes a host of each machine. The argument programs is the folder that Fetch returns. All files of the hosts are in
// dir. Disks that the hosts use must be mounted before.
func Hosts(ctx context.Context, book *ledger.Ledger, machines []*netns.Machine, programs, dir string) ([]*Host, error) {
	names := "127.0.0.1 localhost\n"
	for i, m := range machines {
		names += fmt.Sprintf("%s %s\n", m.Address, hostName(i))
	}
	var all []*Host
	for i, m := range machines {
		h := &Host{Name: hostName(i), address: m.IP(), book: book, dir: filepath.Join(dir, hostName(i))}
		if err := h.start(ctx, m, programs, names); err != nil {
			return nil, fmt.Errorf("storage: host %s: %w", h.Name, err)
		}
		all = append(all, h)
	}
	return all, nil
}

func hostName(i int) string { return fmt.Sprintf("storage%d", i+1) }

// prepare makes the mounts of a host in a new mount namespace. Later mounts of the system appear in the
// namespace, but mounts of the namespace do not appear in the system. The arguments are the folder of the programs, the
// host's folder and the host's name.
const prepare = `set -e
mount -t overlay overlay -o ro,lowerdir="$1/usr":/usr /usr
mount -t overlay overlay -o lowerdir="$1/etc":/etc,upperdir="$2/etc",workdir="$2/etc-work" /etc
mount -t overlay overlay -o lowerdir="$1/var/lib":/var/lib,upperdir="$2/lib",workdir="$2/lib-work" /var/lib
mount --bind "$2/log" /var/log
mount -t tmpfs -o size=64M tmpfs /run
mkdir /run/gluster /run/lock
mount --bind "$2/hosts" /etc/hosts
echo "$3" > /proc/sys/kernel/hostname
echo ready
exec sleep infinity`

// start starts the process that holds the host's namespaces.
func (h *Host) start(ctx context.Context, m *netns.Machine, programs, names string) error {
	for _, d := range []string{"etc", "etc-work", "lib", "lib-work", "log/glusterfs/bricks"} {
		if err := os.MkdirAll(filepath.Join(h.dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(h.dir, "hosts"), []byte(names), 0o644); err != nil {
		return err
	}
	var err error
	h.holder, err = process.Start(process.Options{Book: h.book, Name: h.Name, Log: filepath.Join(h.dir, "host.log"), Dir: "/"},
		"nsenter", "--net="+m.Path(), "--", "unshare", "--mount", "--uts", "--propagation", "slave", "--",
		"sh", "-c", prepare, "prepare", programs, h.dir, h.Name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err = h.holder.Find(ctx, regexp.MustCompile(`(?m)^ready$`))
	return err
}

// HostName returns the host's name.
func (h *Host) HostName() string { return h.Name }

// IP returns the host's IPv4 address.
func (h *Host) IP() string { return h.address }

// Args returns the command line that runs another one on the host, as one process.
func (h *Host) Args(argv ...string) []string {
	return slices.Concat([]string{"nsenter", "--target=" + strconv.Itoa(h.holder.PID()), "--net", "--mount", "--uts", "--"}, h.by, argv)
}

// Start starts a server on the host. Its log is name.log in the host's folder.
func (h *Host) Start(name string, argv ...string) (*process.Process, error) {
	return process.Start(process.Options{Book: h.book, Name: name + " on " + h.Name, Log: filepath.Join(h.dir, name+".log"), Dir: "/"}, h.Args(argv...)...)
}

// outputPatience bounds the wait for the end of a program's output after its end. On a busy machine, a process that this one
// has begun to start at the same time can keep the output open for seconds.
const outputPatience = time.Minute

// Run runs a program on the host and returns its output.
func (h *Host) Run(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all := h.Args(argv...)
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	cmd.Dir, cmd.WaitDelay = "/", outputPatience
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s on %s: %w: %s", strings.Join(argv, " "), h.Name, err, out)
	}
	return string(out), nil
}
