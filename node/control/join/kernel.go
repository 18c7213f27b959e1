package join

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"penstock/bpf"
)

// Orders, as in the program.
const (
	orderJoin    uint32 = 1
	orderRelease uint32 = 2
)

const (
	controlKey = uint32(0)

	// grace is longer than any message takes from the program's decision to the reader's queue.
	grace = time.Second
	// drainFor bounds the time for which stop waits for readers.
	drainFor = 3 * time.Second
)

// generation is one daemon's programs and maps. They are pinned, so that they live on when the daemon is
// killed: without the map of sockets, the kernel would drop the bytes that its sockets have not read yet.
type generation struct {
	path        string
	attached    link.Link // nil: no more
	controls    *ebpf.Map
	connections *ebpf.Map
	orders      *ebpf.Map
	sockets     *ebpf.Map
	drained     *ebpf.Program
}

// names are the pins of a generation.
var names = struct{ attached, controls, connections, orders, sockets, drained string }{"attached", "controls", "connections", "orders", "sockets", "drained"}

// mount makes the folder dir a BPF file system, where programs and maps can be pinned.
func mount(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if isMounted(dir) {
		return nil
	}
	if err := unix.Mount("bpf", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mount the BPF file system at %s: run the daemon or the command as root: %w", dir, err)
	}
	return nil
}

func isMounted(dir string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(dir, &stat) == nil && stat.Type == unix.BPF_FS_MAGIC
}

// generations returns the paths of the generations in dir, which may not exist.
func generations(dir string) ([]string, error) {
	if !isMounted(dir) {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil && e.IsDir() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// pin pins the objects of a new generation in dir, and attaches its programs: first the one that chooses the
// way of messages, and then the one that finds connections.
func pin(dir, cgroup string, o *bpf.SocketjoinObjects) (_ *generation, err error) {
	next := 1
	paths, err := generations(dir)
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		if n, _ := strconv.Atoi(filepath.Base(p)); n >= next {
			next = n + 1
		}
	}
	g := &generation{path: filepath.Join(dir, strconv.Itoa(next)),
		controls: o.Controls, connections: o.Connections, orders: o.Orders, sockets: o.Sockets, drained: o.Drained}
	if err := os.Mkdir(g.path, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.remove())
		}
	}()
	for name, object := range map[string]interface{ Pin(string) error }{
		names.controls: o.Controls, names.connections: o.Connections, names.orders: o.Orders, names.sockets: o.Sockets, names.drained: o.Drained,
	} {
		if err := object.Pin(filepath.Join(g.path, name)); err != nil {
			return nil, fmt.Errorf("pin %s: %w", name, err)
		}
	}
	if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: o.Sockets.FD(), Program: o.Choose, Attach: ebpf.AttachSkMsgVerdict}); err != nil {
		return nil, fmt.Errorf("attach the program that chooses the way of messages: %w", err)
	}
	g.attached, err = link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: ebpf.AttachCGroupSockOps, Program: o.Establish})
	if err != nil {
		return nil, fmt.Errorf("attach the program that finds connections to the cgroup %s: %w", cgroup, err)
	}
	if err := g.attached.Pin(filepath.Join(g.path, names.attached)); err != nil {
		return nil, fmt.Errorf("pin the program that finds connections: %w", err)
	}
	return g, nil
}

// open opens a generation that another process has pinned. Parts that are missing, because that process was
// killed while it made or removed them, are nil.
func open(path string) (*generation, error) {
	g := &generation{path: path}
	var errs []error
	var err error
	for name, m := range map[string]**ebpf.Map{names.controls: &g.controls, names.connections: &g.connections, names.orders: &g.orders, names.sockets: &g.sockets} {
		if *m, err = ebpf.LoadPinnedMap(filepath.Join(path, name), nil); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if g.drained, err = ebpf.LoadPinnedProgram(filepath.Join(path, names.drained), nil); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	if g.attached, err = link.LoadPinnedLink(filepath.Join(path, names.attached), nil); err != nil {
		g.attached = nil
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		g.close()
		return nil, fmt.Errorf("open what an earlier daemon has pinned at %s: %w", path, err)
	}
	return g, nil
}

// release makes all connections use TCP for ever. No further connections are joined.
func (g *generation) release() error {
	var errs []error
	if g.controls != nil {
		// The heartbeat is 0, so it is stale, as nothing beats any more. Its place is the first in all versions.
		errs = append(errs, g.controls.Put(controlKey, make([]byte, g.controls.ValueSize())))
	}
	if g.attached != nil {
		if err := os.Remove(filepath.Join(g.path, names.attached)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		errs = append(errs, g.attached.Close())
		g.attached = nil
	}
	return errors.Join(errs...)
}

// drain removes from the map the sockets of released connections that have read all their joined bytes, so that
// the kernel treats them as before. It returns the number of sockets that stay. released names the connections that
// were released the time grace ago or earlier, and alone the sockets that will have no connection.
func (g *generation) drain(released func(id uint64) bool, alone func(cookie uint64) bool) (left int, err error) {
	if g.sockets == nil || g.connections == nil || g.drained == nil {
		return 0, nil
	}
	cookies, err := keys[uint64](g.sockets)
	if err != nil {
		return 0, err
	}
	if g.connections.ValueSize() != uint32(unsafe.Sizeof(bpf.SocketjoinConnection{})) {
		return len(cookies), nil // of another version, so its sockets stay until they are closed
	}
	in := make(map[uint64]bool, len(cookies))
	for _, cookie := range cookies {
		in[cookie] = true
	}
	remove := func(cookie uint64) error {
		delete(in, cookie)
		if err := g.sockets.Delete(cookie); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("give a socket back to TCP: %w", err)
		}
		return nil
	}
	var id uint64
	var c bpf.SocketjoinConnection
	all := g.connections.Iterate()
	for all.Next(&id, &c) {
		if !in[c.Ends[0].Cookie] && !in[c.Ends[1].Cookie] {
			continue
		}
		done := uint32(0)
		if released(id) {
			if done, err = g.drained.Run(&ebpf.RunOptions{Context: &bpf.SocketjoinQuestion{Connection: id}}); err != nil {
				return 0, fmt.Errorf("examine a socket: %w", err)
			}
		}
		for side, e := range c.Ends {
			if !in[e.Cookie] {
				continue
			}
			if done>>side&1 == 0 {
				delete(in, e.Cookie)
				left++
				continue
			}
			if err := remove(e.Cookie); err != nil {
				return 0, err
			}
		}
	}
	if err := all.Err(); err != nil {
		if errors.Is(err, ebpf.ErrIterationAborted) {
			return len(in), nil // next time
		}
		return 0, err
	}
	for _, cookie := range cookies {
		switch {
		case !in[cookie]:
		case !alone(cookie):
			left++
		default:
			if err := remove(cookie); err != nil {
				return 0, err
			}
		}
	}
	return left, nil
}

func always(uint64) bool { return true }

// keys returns the keys of a map that may change at the same time. The kernel begins again at the first key if
// the present one has been deleted, so keys bounds the number of steps.
func keys[K comparable](m *ebpf.Map) ([]K, error) {
	seen := map[K]bool{}
	var found []K
	var key K
	err := m.NextKey(nil, &key)
	for steps := 0; err == nil && steps < 4*int(m.MaxEntries()); steps++ {
		if !seen[key] {
			seen[key] = true
			found = append(found, key)
		}
		var next K
		err = m.NextKey(key, &next)
		key = next
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, err
	}
	return found, nil
}

// remove removes the pins.
func (g *generation) remove() error {
	err := g.close()
	return errors.Join(err, os.RemoveAll(g.path))
}

func (g *generation) close() error {
	var errs []error
	for _, m := range []*ebpf.Map{g.controls, g.connections, g.orders, g.sockets} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	if g.drained != nil {
		errs = append(errs, g.drained.Close())
	}
	if g.attached != nil {
		errs = append(errs, g.attached.Close())
	}
	return errors.Join(errs...)
}

// retire releases the connections of all generations in dir, and removes each generation whose sockets have
// read all their joined bytes. It returns the number of sockets that have not. Their generations stay pinned.
func retire(dir string, wait time.Duration) (left int, err error) {
	paths, err := generations(dir)
	if err != nil {
		return 0, err
	}
	var all []*generation
	var errs []error
	for _, p := range paths {
		g, err := open(p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, g.release())
		all = append(all, g)
	}
	if len(all) == 0 {
		return 0, errors.Join(errs...)
	}
	time.Sleep(grace)
	for end := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		left = 0
		var rest []*generation
		for _, g := range all {
			n, err := g.drain(always, always)
			if err == nil && n > 0 {
				left += n
				rest = append(rest, g)
				continue
			}
			if err == nil {
				err = g.remove()
			} else {
				err = errors.Join(err, g.close())
			}
			errs = append(errs, err)
		}
		if all = rest; left == 0 || !time.Now().Before(end) {
			break
		}
	}
	for _, g := range all {
		errs = append(errs, g.close())
	}
	return left, errors.Join(errs...)
}

// unmount removes the BPF file system at dir if no generation is pinned there. (The kernel may keep files of its
// own there.)
func unmount(dir string) error {
	paths, err := generations(dir)
	if err != nil || len(paths) > 0 || !isMounted(dir) {
		return err
	}
	if err := unix.Unmount(dir, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return os.Remove(dir)
}
