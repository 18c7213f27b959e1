// Package cgroup sets limits and weights for the block I/O of the processes in a cgroup.
//
// Problem: the kernel can hold the I/O of every process of a cgroup, but what works depends on the
// version of cgroups, on the controllers that are on, and on the device's I/O scheduler. Without an I/O
// scheduler that supports weights, the kernel accepts a weight and ignores it. The files belong to
// somebody else, such as systemd or the NodeManager, who may change or remove them at any time.
//
// Choice: the table of mounts shows where the controller is: io of cgroup v2, or blkio of v1. A
// cgroup is a folder below that mount, which is opened without following links. The cgroup is identified
// by its inode, so that a later cgroup of the same name is never mistaken for it. Each value is one
// change in the journal. The value before is read from the kernel. It is put back only if the cgroup is
// still the same and the present value is still the one that was set. A value without effect is refused.
//
// Limits of v2 also hold buffered writes, because the kernel knows which cgroup made a page dirty, if
// that cgroup also has the memory controller (HoldsBufferedWrites). Limits of v1 do not: the kernel's
// own threads write the pages back, and these threads belong to the root cgroup. So limits of v1 hold
// only reads that miss the page cache, direct I/O, and the writer's own fsync. A weight has an effect
// only while the device is the bottleneck.
//
// The monitor-and-controller paper uses v1, and its buffered writer is not held (its Table 2). This
// package is therefore not the first choice for writers.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"penstock/node/control/journal"
)

// Mechanism is this package's name in the journal.
const Mechanism = "cgroup"

// ErrNoEffect means that the kernel would accept a weight and ignore it.
var ErrNoEffect = errors.New("a weight would have no effect")

// Bounds of the values, from the kernel.
const (
	WeightMin    = 1
	WeightMaxBFQ = 1000  // largest weight of the I/O scheduler bfq
	WeightMaxIO  = 10000 // largest weight of the cost model, iocost
	OpsMax       = 1<<32 - 2
)

// Limits are the limits of a cgroup on a device. 0 means no limit.
type Limits struct {
	ReadBytes, WriteBytes int64 // per second
	ReadOps, WriteOps     int64 // requests per second, at most OpsMax
}

// values returns the limits in the order of keysMax.
func (l Limits) values() []int64 { return []int64{l.ReadBytes, l.WriteBytes, l.ReadOps, l.WriteOps} }

// Validate returns an error for limits that the kernel does not accept.
func (l Limits) Validate() error {
	for i, v := range l.values() {
		switch {
		case v < 0:
			return fmt.Errorf("limit %s %d: use a positive number, or 0 for no limit", keysMax[i], v)
		case i >= 2 && v > OpsMax:
			return fmt.Errorf("limit %s %d: use at most %d requests per second", keysMax[i], v, int64(OpsMax))
		}
	}
	return nil
}

// Controller changes the limits and weights of cgroups. Its methods may be called by several
// goroutines.
type Controller struct {
	hierarchy Hierarchy
	protected func() []int
	mu        sync.Mutex
}

// Open finds the controller of block I/O. protected returns the processes whose cgroups must not be
// held, such as the daemons of Hadoop; it is called before each change. This process is always
// protected.
func Open(protected func() []int) (*Controller, error) {
	h, err := locate()
	if err != nil {
		return nil, err
	}
	return &Controller{hierarchy: h, protected: protected}, nil
}

// locate returns the hierarchy with the controller of block I/O. Only one version can have it.
func locate() (Hierarchy, error) {
	if h, err := Find(V2, controllerV2); err == nil {
		f, err := Group{Hierarchy: h, Path: h.base}.open()
		if err != nil {
			return Hierarchy{}, err
		}
		defer f.Close()
		has, err := f.Read(fileControllers)
		if err != nil {
			return Hierarchy{}, err
		}
		if slices.Contains(strings.Fields(has), controllerV2) {
			return h, nil
		}
	}
	h, err := Find(V1, controllerV1)
	if err != nil {
		return Hierarchy{}, errors.New("find the block I/O controller of cgroups: cgroup v2 does not have it (io in cgroup.controllers), " +
			"and blkio of v1 is not mounted: mount it, boot with cgroup v2, or run the daemon outside of containers")
	}
	return h, nil
}

// Available returns nil if the I/O of cgroups can be held on this machine. Otherwise the error says why not
// and what to do.
func Available() error {
	h, err := locate()
	if err != nil {
		return err
	}
	if err := unix.Faccessat(unix.AT_FDCWD, filepath.Join(h.Mount, "cgroup.procs"), unix.W_OK, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("write to the files of cgroup %s at %s: %w; run the daemon as root, outside of containers with read-only cgroups", h.Version, h.Mount, err)
	}
	if h.Version == V1 {
		if _, err := os.Stat(filepath.Join(h.Mount, keysV1[0])); err != nil {
			return fmt.Errorf("the kernel was built without limits of block I/O (CONFIG_BLK_DEV_THROTTLING): %w", err)
		}
	}
	return nil
}

// Version returns the version of cgroups that has the controller.
func (c *Controller) Version() Version { return c.hierarchy.Version }

// OfProcess returns the cgroup of a process. A process in the root of the hierarchy can be held only after it
// was moved to another cgroup.
func (c *Controller) OfProcess(pid int) (Group, error) { return c.hierarchy.OfProcess(pid) }

// At returns the cgroup at a path from the root of the hierarchy, as in /proc/PID/cgroup.
func (c *Controller) At(path string) (Group, error) { return c.hierarchy.At(path) }

// Limit sets all four limits of a cgroup on a device; it lifts a limit of 0. If one of the limits cannot
// be set, Limit lifts all limits of this cgroup on this device. If the cgroup must no longer be held,
// because a protected process has entered it, Limit lifts all limits and weights of the cgroup.
//
// Limit may be called again and again. It does not write a limit that is in force. It sets a limit again
// that somebody else has changed or lifted in the meantime, and that person's value is the one that is put
// back later.
//
// A limit may not hold buffered writes: see HoldsBufferedWrites. The device must be a whole disk or a mapped
// device, because partitions have no limits of their own.
func (c *Controller) Limit(j *journal.Journal, g Group, d Device, l Limits, why string) error {
	if err := l.Validate(); err != nil {
		return err
	}
	if _, err := deviceFolder(d); err != nil {
		return err
	}
	var knobs []knob
	var values []string
	for i, v := range l.values() {
		k := knob{file: keysV1[i], device: d.String()}
		if c.hierarchy.Version == V2 {
			k = knob{file: fileMax, device: d.String(), key: keysMax[i]}
		}
		value := ""
		if v > 0 {
			value = strconv.FormatInt(v, 10)
		}
		knobs, values = append(knobs, k), append(values, value)
	}
	return c.change(j, g, knobs, values, why)
}

// HoldsBufferedWrites returns nil if limits of a cgroup hold its buffered writes, and otherwise why they do
// not. The file system must also attribute writeback to cgroups, as ext4, xfs and btrfs do.
func (c *Controller) HoldsBufferedWrites(g Group) error {
	if g.Hierarchy.Version == V1 {
		return fmt.Errorf("cgroup %s: limits of cgroup v1 do not hold buffered writes; boot with cgroup v2, or use another mechanism", g)
	}
	f, err := g.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	has, err := f.Read(fileControllers)
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(has), "memory") {
		return fmt.Errorf("cgroup %s: limits hold buffered writes only if the memory controller is on as well: turn it on in the cgroup.subtree_control of the cgroups above it", g)
	}
	return nil
}

// Weight sets the weight of a cgroup on a device, relative to the other cgroups below the same
// parent; a cgroup without a weight has 100. It returns an error that wraps ErrNoEffect if the weight
// would have no effect (see CanWeigh).
//
// If readers keep few requests in flight, bfq meets their weights only if the device's
// queue/iosched/strict_guarantees is 1. Otherwise bfq serves requests of other cgroups in between, for
// throughput: TestWeightsOrderReaders saw ratios of 1 to 1.5 for the weights 400:100.
//
// A kernel older than 5.4 with cgroup v1 has one weight for all devices, which is then the last one set.
func (c *Controller) Weight(j *journal.Journal, g Group, d Device, weight int, why string) error {
	file, maximum, err := c.weigher(d)
	if err != nil {
		return err
	}
	if weight < WeightMin || weight > maximum {
		return fmt.Errorf("weight %d on device %s: use %d to %d", weight, d, WeightMin, maximum)
	}
	k := knob{file: file, device: d.String()}
	if file == fileBFQ1Device {
		f, err := g.Open()
		if err != nil {
			return err
		}
		_, err = f.Read(file)
		f.Close()
		if errors.Is(err, fs.ErrNotExist) {
			k = knob{file: fileBFQ1}
		} else if err != nil {
			return err
		}
	}
	return c.change(j, g, []knob{k}, []string{strconv.Itoa(weight)}, why)
}

// CanWeigh returns nil if a weight on the device would have an effect, and otherwise why not. Weights need
// the I/O scheduler bfq on the device or, with cgroup v2, the cost model of io.cost.qos.
func (c *Controller) CanWeigh(d Device) error {
	_, _, err := c.weigher(d)
	return err
}

// weigher returns the file for weights on a device, and the largest weight.
func (c *Controller) weigher(d Device) (file string, maximum int, err error) {
	folder, err := deviceFolder(d)
	if err != nil {
		return "", 0, err
	}
	name := filepath.Base(folder)
	schedulers, _ := os.ReadFile(filepath.Join(folder, "queue/scheduler")) // some devices have none
	if strings.Contains(string(schedulers), "[bfq]") {
		idle, err := os.ReadFile(filepath.Join(folder, "queue/iosched/slice_idle_us"))
		if err == nil && strings.TrimSpace(string(idle)) == "0" {
			return "", 0, fmt.Errorf("%w: slice_idle of bfq is 0 on %s; set it to 8, bfq's default, for example by echo 8 >/sys/block/%s/queue/iosched/slice_idle", ErrNoEffect, name, name)
		}
		if c.hierarchy.Version == V2 {
			return fileBFQ, WeightMaxBFQ, nil
		}
		return fileBFQ1Device, WeightMaxBFQ, nil
	}
	remedy := fmt.Sprintf("choose the scheduler, for example by echo bfq >/sys/block/%s/queue/scheduler", name)
	if c.hierarchy.Version == V2 {
		root, err := Group{Hierarchy: c.hierarchy, Path: c.hierarchy.base}.open()
		if err != nil {
			return "", 0, err
		}
		defer root.Close()
		qos, err := root.Read("io.cost.qos")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", 0, err
		}
		if (knob{file: "io.cost.qos", device: d.String(), key: "enable"}).get(qos) == "1" {
			return fileWeight, WeightMaxIO, nil
		}
		remedy += fmt.Sprintf(", or turn the cost model on: echo '%s enable=1' >%s", d, filepath.Join(c.hierarchy.Mount, "io.cost.qos"))
	}
	return "", 0, fmt.Errorf("%w: the I/O scheduler of %s is not bfq (%s); %s", ErrNoEffect, name, strings.TrimSpace(string(schedulers)), remedy)
}

// deviceFolder returns the folder of a whole device in sysfs.
func deviceFolder(d Device) (string, error) {
	folder, err := filepath.EvalSymlinks(filepath.Join("/sys/dev/block", d.String()))
	if err != nil {
		return "", fmt.Errorf("there is no block device %s", d)
	}
	if _, err := os.Stat(filepath.Join(folder, "partition")); err == nil {
		return "", fmt.Errorf("device %s is the partition %s: name the whole disk, because cgroups have no limits for partitions", d, filepath.Base(folder))
	}
	return folder, nil
}

// change sets the knobs of a cgroup to values. A knob with an empty value is put back.
func (c *Controller) change(j *journal.Journal, g Group, knobs []knob, values []string, why string) (err error) {
	if g.Hierarchy != c.hierarchy {
		return fmt.Errorf("cgroup %s is not in the hierarchy of the block I/O controller at %s", g, c.hierarchy.Mount)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f, err := g.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Refuse(c.protected()); err != nil {
		return errors.Join(err, lift(j, func(t target) bool { return t.id == g.ID }))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lift(j, func(t target) bool { return t.id == g.ID && slices.Contains(knobs, t.knob) }))
		}
	}()
	ours := recorded(j)
	if err := c.enable(j, g, ours, why); err != nil {
		return err
	}
	for i, k := range knobs {
		t := target{c.hierarchy.Version, k, g.ID, g.Path}
		if values[i] == "" {
			if err := j.PutBack(Mechanism, t.String()); err != nil {
				return err
			}
			continue
		}
		if err := set(j, f, t, values[i], ours, why); err != nil {
			return err
		}
	}
	return nil
}

// recorded returns the values that this mechanism has set, by target.
func recorded(j *journal.Journal) map[string]string {
	ours := map[string]string{}
	for _, ch := range j.Changes() {
		if ch.Mechanism == Mechanism {
			ours[ch.Target] = ch.After
		}
	}
	return ours
}

// set records the change of a knob and makes the change, unless the value is in force already. ours is the
// result of recorded.
func set(j *journal.Journal, f *Folder, t target, value string, ours map[string]string, why string) error {
	text, err := f.Read(t.knob.file)
	if err != nil {
		return err
	}
	before := t.knob.get(text)
	if last, known := ours[t.String()]; known && last != before {
		// Somebody else has changed the knob. So our earlier change is over, and the present value is the one
		// that is put back later.
		if err := j.PutBack(Mechanism, t.String()); err != nil {
			return err
		}
		if text, err = f.Read(t.knob.file); err != nil { // PutBack may have changed the value
			return err
		}
		before = t.knob.get(text)
	}
	if before == value {
		return nil // the value is in force, by an earlier call or without this daemon
	}
	return j.Make(journal.Change{Mechanism: Mechanism, Target: t.String(), Before: before, After: value, Why: why}, func() error {
		if err := f.Write(t.knob.file, t.knob.set(value)); err != nil {
			return err
		}
		text, err := f.Read(t.knob.file)
		if err != nil {
			return err
		}
		if now := t.knob.get(text); now != value {
			return fmt.Errorf("cgroup %s: %s is %q after %q was written to it", f.group, t.knob.file, now, value)
		}
		return nil
	})
}

// enable turns the controller of cgroup v2 on for the cgroup g, in each cgroup above it.
func (c *Controller) enable(j *journal.Journal, g Group, ours map[string]string, why string) error {
	if c.hierarchy.Version == V1 {
		return nil
	}
	for _, above := range ancestors(g) {
		parent, err := c.hierarchy.At(above)
		if err != nil {
			return err
		}
		f, err := parent.Open()
		if err != nil {
			return err
		}
		t := target{V2, knob{file: fileSubtree, key: controllerV2}, parent.ID, parent.Path}
		err = set(j, f, t, on, ours, why)
		f.Close()
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("%w: the cgroup %s has processes of its own, so the kernel does not give its children the io controller: "+
				"move these processes to a child, or hold %s itself", err, above, above)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ancestors returns the paths of the cgroups above g, from the top.
func ancestors(g Group) (paths []string) {
	for at := g.Path; at != g.Hierarchy.base; {
		at = path.Dir(at)
		paths = append(paths, at)
	}
	slices.Reverse(paths)
	return paths
}

// Lift puts back all limits and weights of a cgroup, which may have been removed.
func (c *Controller) Lift(j *journal.Journal, g Group) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return lift(j, func(t target) bool { return t.id == g.ID })
}

// Sweep removes the records of cgroups that no longer exist, so that they do not fill the journal.
func (c *Controller) Sweep(j *journal.Journal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := map[uint64]bool{}
	return lift(j, func(t target) bool {
		if _, known := gone[t.id]; !known {
			f, err := Group{Hierarchy: c.hierarchy, Path: t.path, ID: t.id}.Open()
			if err == nil {
				f.Close()
			}
			gone[t.id] = errors.Is(err, ErrGone)
		}
		return gone[t.id]
	})
}

// lift puts back the chosen changes, the latest first, and then turns the controller off in the
// cgroups that have no other changed cgroup below them.
func lift(j *journal.Journal, chosen func(target) bool) error {
	var errs []error
	var rest []target
	for _, ch := range slices.Backward(j.Changes()) {
		if ch.Mechanism != Mechanism {
			continue
		}
		t, err := parseTarget(ch.Target)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if t.knob.file == fileSubtree || !chosen(t) {
			rest = append(rest, t)
			continue
		}
		if err := j.PutBack(Mechanism, ch.Target); err != nil {
			errs = append(errs, err)
			rest = append(rest, t)
		}
	}
	// rest has the latest change first, so the controller is turned off in lower cgroups first.
	for _, t := range rest {
		used := func(other target) bool {
			return other.knob.file != fileSubtree && (t.path == "/" || strings.HasPrefix(other.path, t.path+"/"))
		}
		if t.knob.file == fileSubtree && !slices.ContainsFunc(rest, used) {
			errs = append(errs, j.PutBack(Mechanism, t.String()))
		}
	}
	return errors.Join(errs...)
}

// Undo puts a change back: see journal.Undo. It does nothing if the value is no longer the one that was
// set, or if the cgroup was removed, even if another one has its name now. It leaves the io controller of
// cgroup v2 on if somebody else has set limits or weights in a cgroup below: turning it off would lose them.
func Undo(ch journal.Change) error {
	t, err := parseTarget(ch.Target)
	if err != nil {
		return err
	}
	g, err := t.group()
	if err != nil {
		return err
	}
	f, err := g.Open()
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	err = t.undo(f, ch)
	if errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

func (t target) undo(f *Folder, ch journal.Change) error {
	text, err := f.Read(t.knob.file)
	if err != nil {
		return err
	}
	if t.knob.get(text) != ch.After {
		return nil
	}
	if t.knob.file == fileSubtree {
		used, err := f.usedBelow()
		if used || err != nil {
			return err
		}
	}
	err = f.Write(t.knob.file, t.knob.set(ch.Before))
	if errors.Is(err, unix.EBUSY) && t.knob.file == fileSubtree {
		return nil // a cgroup below has turned the controller on for its own children
	}
	return err
}

// usedBelow reports whether a cgroup directly below has a limit or a weight.
func (f *Folder) usedBelow() (bool, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/self/fd/%d", f.fd))
	if err != nil {
		return false, f.failed("list", ".", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		for _, file := range []string{fileMax, fileWeight, fileBFQ} {
			text, err := f.readAt(f.fd, e.Name()+"/"+file, maxValue)
			if err != nil {
				continue // the kernel has no such file, or the cgroup was removed
			}
			if s := strings.TrimSpace(string(text)); s != "" && s != "default 100" {
				return true, nil
			}
		}
	}
	return false, nil
}
