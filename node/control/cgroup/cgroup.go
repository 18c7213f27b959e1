// Package cgroup limits and weighs the block I/O of a container by the cgroup in which it runs.
//
// Problem: the kernel can hold the I/O of every process of a cgroup, but what works depends on the
// version of cgroups, on the controllers that are on, and on the device's I/O scheduler. A weight
// without a scheduler that knows weights is accepted and does nothing. The files belong to somebody
// else, such as systemd or the NodeManager, who may change or remove them at any time.
//
// Choice: the table of mounts says where the controller is: io of cgroup v2, or blkio of v1. A
// cgroup is a folder below that mount which is opened without following links, and is known by its
// inode, so that a later cgroup of the same name is never taken for it. Each value is one change in
// the journal: its value before is read from the kernel, and is put back only while the cgroup is
// the same and the value is still the one that was set. What would do nothing is refused.
//
// Limits of v2 also hold buffered writes: the kernel knows which cgroup made a page dirty, if that
// cgroup has the controller of memory too (HoldsBufferedWrites). Limits of v1 do not: the kernel's
// own threads write the pages back, and they belong to the root cgroup. There only reads that miss
// the page cache, direct I/O, and the writer's own fsync are held. A weight works only while the
// device is the bottleneck.
//
// The paper about a monitor and controller of I/O in shared clusters uses v1, and its buffered
// writer is not held (its Table 2). This package is therefore not the first choice for writers.
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
	WeightMaxBFQ = 1000  // of the I/O scheduler bfq
	WeightMaxIO  = 10000 // of the cost model, iocost
	OpsMax       = 1<<32 - 2
)

// Limits are the limits of a cgroup on a device. 0 means no limit.
type Limits struct {
	ReadBytes, WriteBytes int64 // per second
	ReadOps, WriteOps     int64 // requests per second, at most OpsMax
}

// values returns the limits in the order of keysMax.
func (l Limits) values() []int64 { return []int64{l.ReadBytes, l.WriteBytes, l.ReadOps, l.WriteOps} }

// Validate returns an error for limits that the kernel cannot have.
func (l Limits) Validate() error {
	for i, v := range l.values() {
		switch {
		case v < 0:
			return fmt.Errorf("limit %s %d: use 0 for no limit, or more", keysMax[i], v)
		case i >= 2 && v > OpsMax:
			return fmt.Errorf("limit %s %d: at most %d requests a second are possible", keysMax[i], v, int64(OpsMax))
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
		return Hierarchy{}, errors.New("the kernel's controller of block I/O is neither in cgroup v2 (io in cgroup.controllers) " +
			"nor mounted as blkio of v1: mount it, boot with cgroup v2, or run the daemon outside of containers")
	}
	return h, nil
}

// Available returns why the I/O of cgroups cannot be held on this machine, and what to do about it;
// nil if it can.
func Available() error {
	h, err := locate()
	if err != nil {
		return err
	}
	if err := unix.Faccessat(unix.AT_FDCWD, filepath.Join(h.Mount, "cgroup.procs"), unix.W_OK, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("the files of cgroup %s at %s cannot be written: %w; run the daemon as root, outside of containers with read-only cgroups", h.Version, h.Mount, err)
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

// OfProcess returns the cgroup of a process. Processes in its hierarchy's root can only be held after
// they were moved to a cgroup.
func (c *Controller) OfProcess(pid int) (Group, error) { return c.hierarchy.OfProcess(pid) }

// At returns the cgroup at a path from the root of the hierarchy, as in /proc/PID/cgroup.
func (c *Controller) At(path string) (Group, error) { return c.hierarchy.At(path) }

// Limit sets all four limits of a cgroup on a device; a limit of 0 is lifted. If one of them cannot be
// set, those of this cgroup on this device are lifted. If the cgroup must no longer be held, since a
// protected process has entered it, all its limits and weights are lifted.
//
// Limit may be called again and again. A limit that is in force is not written again. A limit that
// somebody else has changed or lifted meanwhile is set again, and their value is the one that is put
// back later.
//
// Buffered writes may not be held: see HoldsBufferedWrites. The device must be a whole disk or a mapped device:
// partitions have no limits of their own.
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

// HoldsBufferedWrites returns why limits of a cgroup do not hold its buffered writes; nil if they do.
// The file system must attribute writeback too, as ext4, xfs and btrfs do.
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
// parent; a cgroup without a weight has 100. With bfq, weights of readers that keep few requests in
// flight are met only if the device's queue/iosched/strict_guarantees is 1: otherwise bfq lets other
// cgroups' requests in between, for throughput, and a test measured 1 to 1.5 for the weights 400:100. It returns an error that wraps ErrNoEffect where a weight
// would do nothing (see CanWeigh).
//
// A kernel older than 5.4 with cgroup v1 has one weight for all devices; then the last one counts.
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

// CanWeigh returns why a weight on the device would have no effect; nil if it has one. Weights need
// the I/O scheduler bfq on the device or, with cgroup v2, the cost model of io.cost.qos.
func (c *Controller) CanWeigh(d Device) error {
	_, _, err := c.weigher(d)
	return err
}

// weigher returns the file and the largest weight.
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

// change sets the knobs of a cgroup. An empty value puts back the knob.
func (c *Controller) change(j *journal.Journal, g Group, knobs []knob, values []string, why string) (err error) {
	if g.Hierarchy != c.hierarchy {
		return fmt.Errorf("cgroup %s: it is not in the hierarchy of block I/O at %s", g, c.hierarchy.Mount)
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

// set records the change of a knob and makes it, unless it is in force. ours is from recorded.
func set(j *journal.Journal, f *Folder, t target, value string, ours map[string]string, why string) error {
	text, err := f.Read(t.knob.file)
	if err != nil {
		return err
	}
	before := t.knob.get(text)
	if last, known := ours[t.String()]; known && last != before {
		// Somebody else has changed it: what was set before is over, and this value is put back later.
		if err := j.PutBack(Mechanism, t.String()); err != nil {
			return err
		}
		if text, err = f.Read(t.knob.file); err != nil { // it may be what an earlier change has left, after all
			return err
		}
		before = t.knob.get(text)
	}
	if before == value {
		return nil // it has been set before, or it is so without this daemon and stays so
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

// Lift puts back all limits and weights of a cgroup. It may have been removed.
func (c *Controller) Lift(j *journal.Journal, g Group) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return lift(j, func(t target) bool { return t.id == g.ID })
}

// Sweep ends the records of the cgroups that have been removed, so that they do not fill the journal.
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
	// rest has the latest first, so the controller is turned off from the bottom.
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

// Undo puts a change back: see journal.Undo. It does nothing if the cgroup was removed, even if there
// is another one of its name, and if the value is no longer the one that was set. The io controller
// of cgroup v2 stays on if somebody has set limits or weights below meanwhile, which would be lost.
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
