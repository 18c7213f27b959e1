package blockio

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"penstock/bpf"
)

// MaxDevices is the maximum number of watched devices: the size of the map in bpf/blockio.c.
const MaxDevices = 256

const (
	maxUsers  = 4096 // of all devices, as in bpf/blockio.c
	manyUsers = maxUsers * 3 / 4
	forget    = 5 * time.Minute  // a user without I/O is dropped after this time
	forgetAt  = 10 * time.Second // the same, if there are many users
	kernelBTF = "/sys/kernel/btf/vmlinux"
)

// Number returns a block device's number in the form of User.Device. sysfs is the root of sysfs:
// "/sys", except in tests. If the device does not exist, Number returns an error.
func Number(sysfs, name string) (uint32, error) {
	text, err := os.ReadFile(filepath.Join(sysfs, "block", name, "dev"))
	if err != nil {
		return 0, fmt.Errorf("number of device %s: %w", name, err)
	}
	return parseNumber(strings.TrimSpace(string(text)))
}

// parseNumber reads major:minor. In the kernel, the two numbers have 12 and 20 bits.
func parseNumber(text string) (uint32, error) {
	before, after, _ := strings.Cut(text, ":")
	major, err := strconv.ParseUint(before, 10, 12)
	minor, err2 := strconv.ParseUint(after, 10, 20)
	if err := errors.Join(err, err2); err != nil {
		return 0, fmt.Errorf("device number %q: %w", text, err)
	}
	return uint32(major<<20 | minor), nil
}

// Watch counts while it is open. Its methods may be called from several goroutines.
type Watch struct {
	objects bpf.BlockioObjects
	links   []link.Link
	own     uint32

	mu      sync.Mutex
	cgroups cgroups
	seen    map[bpf.BlockioUserKey]activity
	keys    []bpf.BlockioUserKey
	values  []bpf.BlockioUserCount

	latencies latencies
}

// activity is the time of the last change of a user's bytes.
type activity struct {
	bytes [2]uint64
	at    time.Time
}

// Open loads the programs and watches the devices. The list may be empty; Govern adds devices. The
// error names the missing right or part of the kernel.
func Open(devices ...uint32) (*Watch, error) {
	if _, err := os.Stat(kernelBTF); err != nil {
		return nil, fmt.Errorf("the kernel does not provide its type information (CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	w := &Watch{
		cgroups: cgroups{root: findHierarchy("/proc/self/mountinfo")}, seen: map[bpf.BlockioUserKey]activity{},
		keys: make([]bpf.BlockioUserKey, maxUsers), values: make([]bpf.BlockioUserCount, maxUsers),
		latencies: newLatencies(),
	}
	if err := bpf.LoadBlockioObjects(&w.objects, nil); err != nil {
		return nil, refused("load", err)
	}
	if err := w.begin(devices); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func refused(what string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%s BPF programs: CAP_BPF and CAP_PERFMON are needed, or root: %w", what, os.ErrPermission)
	}
	return fmt.Errorf("%s BPF programs: not supported by this kernel (5.14 or later is needed): %w", what, err)
}

func (w *Watch) begin(devices []uint32) error {
	w.own = uint32(os.Getpid())
	if _, err := w.objects.TellOwn.Run(&ebpf.RunOptions{}); err == nil {
		if err := w.objects.OwnTgid.Get(&w.own); err != nil {
			return refused("read", err)
		}
	}
	for _, d := range devices {
		if err := w.Govern(d); err != nil {
			return err
		}
	}
	// Completions first: they remove the entries that the other programs make.
	for _, p := range []*ebpf.Program{
		w.objects.RequestCompleted, w.objects.RequestIssued, w.objects.BioQueued,
	} {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return refused("attach", err)
		}
		w.links = append(w.links, l)
	}
	return nil
}

// Govern watches one more device. There are at most MaxDevices.
func (w *Watch) Govern(device uint32) error {
	err := w.objects.OtherLatencies.Update(device, bpf.BlockioLatencyCount{}, ebpf.UpdateNoExist)
	if err == nil || errors.Is(err, ebpf.ErrKeyExist) {
		err = w.objects.Governed.Update(device, bpf.BlockioLost{}, ebpf.UpdateNoExist)
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("watch device %d:%d (at most %d): %w", device>>20, device&(1<<20-1), MaxDevices, err)
	}
	return nil
}

// Read returns the table. It drops users that had no I/O for five minutes, or for ten seconds if
// there are many users.
func (w *Watch) Read() (Table, error) { return w.read(time.Now()) }

func (w *Watch) read(now time.Time) (Table, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := Table{Lost: map[uint32]Lost{}}
	var cursor ebpf.MapBatchCursor
	n, err := w.objects.Users.BatchLookup(&cursor, w.keys, w.values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return t, fmt.Errorf("read the users of devices: %w", err)
	}
	seen := make(map[bpf.BlockioUserKey]activity, n)
	for i, k := range w.keys[:n] {
		v := &w.values[i]
		a, known := w.seen[k]
		if !known || a.bytes != v.Bytes {
			a = activity{v.Bytes, now}
		}
		if idle := now.Sub(a.at); idle >= forget || n >= manyUsers && idle >= forgetAt {
			if err := w.objects.Users.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return t, fmt.Errorf("forget a user of a device: %w", err)
			}
			continue
		}
		seen[k] = a
		t.Users = append(t.Users, w.user(k, v, now))
	}
	w.seen = seen
	var device uint32
	var lost bpf.BlockioLost
	all := w.objects.Governed.Iterate()
	for all.Next(&device, &lost) {
		t.Lost[device] = Lost{int64(lost.Pieces), int64(lost.Bytes)}
	}
	return t, all.Err()
}

func (w *Watch) user(k bpf.BlockioUserKey, v *bpf.BlockioUserCount, now time.Time) User {
	u := User{
		Device: k.Device, PID: k.Tgid, Name: text(v.Comm), Cgroup: w.cgroups.path(k.Cgroup, now),
		Own: k.Tgid != 0 && k.Tgid == w.own,
		key: key{k.Device, k.Tgid, k.Cgroup, text(k.Name)},
	}
	if u.PID == 0 {
		u.Name = u.key.thread
	}
	for i := range 2 {
		u.Pieces[i], u.Bytes[i], u.Time[i] = int64(v.Pieces[i]), int64(v.Bytes[i]), time.Duration(v.TimeNs[i])
	}
	return u
}

// text returns a name from the kernel as valid text: a process may choose any bytes.
func text(name [16]int8) string {
	var b []byte
	for _, c := range name {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return strings.ToValidUTF8(string(b), "?")
}

// Close stops the counting.
func (w *Watch) Close() error {
	var errs []error
	for _, l := range w.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, w.objects.Close())...)
}
