// Package join joins the two sockets of TCP connections between containers of one machine: what one end sends
// is put into the other end's queue, past bridge, NAT and TCP. The containers do not notice the change, with few
// exceptions (docs/design/network.md).
//
// Problem: the packets of co-located containers pass two network namespaces, a bridge, netfilter and NAT, and
// each round trip pays for all of them (the paper on Docker's networks, sections 3 and 5). What is hard: finding
// both ends behind NAT; switching without losing or reordering a byte; returning to TCP at any moment,
// even when the daemon is killed; and honouring the network's rules and limits.
//
// Choice: two eBPF programs, bpf/socketjoin.c, with the kernel's map of sockets. docs/design/network.md has the
// argument. This package loads and pins the programs, sends a heartbeat without which connections use TCP, verifies
// connections behind NAT in the kernel's table of connections, and releases connections when rules change.
// A released connection's sockets leave the kernel's map as soon as they have read what was joined.
//
// A connection is established as usual, so a rule that drops its packets is honoured. It is never joined if its
// ends are in one network namespace, if one end has a pacing rate, or if its state was set by a process
// (TCP_REPAIR). A released connection is never joined again.
package join

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"penstock/bpf"
	"penstock/node/control/journal"
	"penstock/node/monitor/connections"
	"penstock/node/status"
)

// Mechanism is the mechanism's name in the journal of changes.
const Mechanism = "join"

const (
	beatEvery  = 200 * time.Millisecond
	rulesEvery = 300 * time.Millisecond // the poll for changes that the kernel does not announce
	sweepEvery = time.Second
	// proofEvery is the interval after which a message goes by TCP. It proves that the packets' way is still open.
	proofEvery = time.Second
	// maxTries bounds the searches for a connection in the kernel's table of connections.
	maxTries = 3
	// maxPorts is the size of the program's map.
	maxPorts = 1024
	// share is the part of a reader's socket buffer that joined bytes may use, in 256ths. A packet of HDFS (64 KiB)
	// fits into this part of the kernel's default buffer (128 KiB). The rest keeps TCP's window open: a window that
	// joined bytes have closed would be opened only by TCP's own probes, as the kernel announces no room when
	// joined bytes are read.
	share = 160
)

// Config says what is joined, and where.
type Config struct {
	// Dir is the folder where the programs are pinned. Start makes it and mounts a file system there. Only
	// root may write to the folder above it.
	Dir string
	// Cgroup is the folder of the cgroup (v2) whose sockets may be joined; the root has all.
	Cgroup string
	// Ports are servers' ports, inside or as published. Without any, connections to all ports are joined.
	// At most 1024.
	Ports []uint16
	// Journal records the change.
	Journal *journal.Journal
	Log     *slog.Logger

	proof time.Duration // for how long the way of packets counts as open; 0: a second
}

// Reason says why a connection was released.
type Reason uint32

// Reasons, as in the program.
const (
	NotReleased     Reason = iota
	RulesChanged           // or everything was released
	HeartbeatMissed        // the daemon was killed or hung
	Paced                  // one end got a pacing rate
	Ordered                // by Release
	OtherKind              // an end uses TLS of the kernel, sending without copies, or a bound on what is readable
)

var reasons = [...]string{"", "rules changed", "heartbeat missed", "paced", "ordered", "kind of socket"}

func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return fmt.Sprintf("reason %d", uint32(r))
}

// End is one end of a connection, as its own socket sees it.
type End struct {
	Local, Remote netip.AddrPort // IPv4 addresses also if the socket is one of IPv6
	Namespace     uint64         // cookie of the network namespace
	Cookie        uint64         // of the socket
	// Joined reports whether the last message that this end sent went straight to the other end.
	Joined bool
	// Bytes and Messages are what this end has sent straight to the other end. TCP's counters do not have them.
	Bytes, Messages uint64
	// Full is the number of times that the reader's buffer was full, so that TCP was used again.
	Full uint32
}

// Connection is a connection whose ends were found.
type Connection struct {
	ID             uint64
	Client, Server End
	NAT            bool // the ends see different addresses
	Verified       bool // the ends' addresses fit, so the connection may be joined
	Released       Reason
}

// Status is the state of a Join.
type Status struct {
	Connections []Connection // open ones, in no order
	// ClosedConnections and ClosedBytes are those of connections that are closed and were joined.
	ClosedConnections, ClosedBytes uint64
	// Sockets is the number of sockets that the kernel can join. Some may have no other end here.
	Sockets int
	// Releases is the number of times that all connections were released, and LastRelease says why.
	Releases    int
	LastRelease string
	// Limited says why nothing is joined at present: an interface has a limit that would be bypassed. "": none has.
	Limited string
	Error   string // the last error
}

// Document returns the state in the form of the status document.
func (s Status) Document() status.Joining {
	d := status.Joining{Connections: len(s.Connections), Bytes: s.ClosedBytes, Closed: s.ClosedConnections, Sockets: s.Sockets,
		Releases: s.Releases, LastRelease: s.LastRelease, Limited: s.Limited, Error: s.Error}
	for _, c := range s.Connections {
		if c.Client.Joined || c.Server.Joined {
			d.Joined++
		}
		if c.NAT {
			d.Translated++
		}
		if c.Released != NotReleased {
			d.Released++
		}
		d.Bytes += c.Client.Bytes + c.Server.Bytes
	}
	return d
}

// Join joins connections until it is closed. Its methods may be called by several goroutines.
type Join struct {
	config  Config
	objects bpf.SocketjoinObjects
	current *generation
	table   *table
	rules   *rules
	links   *netlink.Handle
	netns   uint64 // cookie of the network namespace in which Start was called
	events  *ringbuf.Reader
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	control bpf.SocketjoinControl
	tries   map[uint64]int // by connection
	// alone are the sockets without another end, and released has the times since when connections are known to be
	// released. Both are from the last sweep.
	alone    map[uint64]bool
	released map[uint64]time.Time
	status   Status
	closed   bool
}

// Start cleans up after an earlier daemon, loads the programs, and attaches them. It uses the rules and the
// table of connections of the caller's network namespace: the one in which addresses are translated. The
// joining ends when ctx is done or Close is called.
func Start(ctx context.Context, c Config) (_ *Join, err error) {
	if len(c.Ports) > maxPorts {
		return nil, fmt.Errorf("join connections to %d ports: name at most %d", len(c.Ports), maxPorts)
	}
	if err := Available(); err != nil {
		return nil, err
	}
	if _, err := retire(c.Dir, 0); err != nil {
		return nil, fmt.Errorf("clean up after an earlier daemon: %w", err)
	}
	j := &Join{config: c, tries: map[uint64]int{}, alone: map[uint64]bool{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, j.free())
		}
	}()
	if j.table, err = openTable(); err != nil {
		return nil, err
	}
	if j.rules, err = openRules(); err != nil {
		return nil, err
	}
	if j.links, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("connect to the kernel's network configuration (netlink): %w", err)
	}
	if j.netns, err = ownNamespace(); err != nil {
		return nil, err
	}
	if err := bpf.LoadSocketjoinObjects(&j.objects, nil); err != nil {
		return nil, fmt.Errorf("load the programs that join sockets; they need Linux 6.13 with BTF, CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN: %w", err)
	}
	for _, port := range c.Ports {
		if err := j.objects.Ports.Put(port, uint8(1)); err != nil {
			return nil, err
		}
	}
	j.control = bpf.SocketjoinControl{Epoch: 1, Share: share, ProofNs: uint64(proofEvery)}
	if c.proof > 0 {
		j.control.ProofNs = uint64(c.proof)
	}
	if len(c.Ports) > 0 {
		j.control.Ports = 1
	}
	if err := errors.Join(j.beat(), j.addresses(), j.limits()); err != nil {
		return nil, err
	}
	if j.events, err = ringbuf.NewReader(j.objects.Candidates); err != nil {
		return nil, err
	}
	err = c.Journal.Make(journal.Change{Mechanism: Mechanism, Target: c.Dir, After: "attached", Why: "connections between containers are joined"}, func() (err error) {
		if err := mount(c.Dir); err != nil {
			return err
		}
		j.current, err = pin(c.Dir, c.Cgroup, &j.objects)
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, j.cancel = context.WithCancel(ctx)
	j.every(ctx, beatEvery, j.beat)
	j.every(ctx, rulesEvery, func() error {
		changed, err := j.rules.poll()
		if err == nil && changed != "" {
			j.ReleaseAll(changed)
		}
		return err
	})
	j.every(ctx, sweepEvery, j.sweep)
	j.running.Go(func() {
		for {
			changed, err := j.rules.wait()
			if err != nil {
				if ctx.Err() == nil {
					j.note(err)
				}
				return
			}
			j.ReleaseAll(changed)
			j.note(j.limits())
		}
	})
	j.running.Go(func() {
		for {
			record, err := j.events.Read()
			if err != nil {
				return
			}
			if len(record.RawSample) >= 8 {
				j.note(j.verify(binary.NativeEndian.Uint64(record.RawSample)))
			}
		}
	})
	context.AfterFunc(ctx, func() {
		j.events.Close()
		j.rules.interrupt()
	})
	return j, nil
}

// every calls f at once and then periodically until ctx is done.
func (j *Join) every(ctx context.Context, period time.Duration, f func() error) {
	j.running.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			j.note(f())
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

func (j *Join) note(err error) {
	if err == nil {
		return
	}
	j.mu.Lock()
	first := !j.closed && j.status.Error != err.Error()
	if first {
		j.status.Error = err.Error()
	}
	j.mu.Unlock()
	if first {
		j.config.Log.Error("join connections", "error", err)
	}
}

// beat sends a heartbeat, by the clock that the programs use.
func (j *Join) beat() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.beatLocked()
}

func (j *Join) beatLocked() error {
	if j.closed {
		return nil
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	j.control.BeatNs = uint64(now.Nano())
	return j.objects.Controls.Put(controlKey, j.control)
}

// ReleaseAll releases all connections at once. Connections that are made later are joined.
func (j *Join) ReleaseAll(why string) {
	j.mu.Lock()
	j.control.Epoch++
	err := j.beatLocked()
	j.status.Releases++
	j.status.LastRelease = why
	j.mu.Unlock()
	j.note(err)
	j.config.Log.Info("joined connections use TCP again", "why", why)
}

// Release releases the open connections that which names, and returns their number. A message that is being
// sent when Release returns may still go straight to the reader.
func (j *Join) Release(which func(Connection) bool) (int, error) {
	all, err := j.connections()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, c := range all {
		if c.Released != NotReleased || !which(c) {
			continue
		}
		if err := j.objects.Orders.Put(c.ID, orderRelease); err != nil {
			return n, fmt.Errorf("release a connection: %w", err)
		}
		n++
	}
	return n, nil
}

// Status returns the present state.
func (j *Join) Status() Status {
	all, err := j.connections()
	j.note(err)
	var total bpf.SocketjoinTotal
	j.note(j.objects.Totals.Lookup(controlKey, &total))
	cookies, err := keys[uint64](j.objects.Sockets)
	j.note(err)
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.status
	s.Connections, s.Sockets = all, len(cookies)
	s.ClosedConnections, s.ClosedBytes = total.Connections, total.Bytes
	return s
}

// Bypass returns the bytes of the sockets of open connections that TCP has not counted, by the sockets' cookies.
// It is for connections.Watch.
func (j *Join) Bypass() map[uint64]connections.Bypass {
	all, err := j.connections()
	j.note(err)
	bytes := make(map[uint64]connections.Bypass, 2*len(all))
	for _, c := range all {
		bytes[c.Client.Cookie] = connections.Bypass{Sent: int64(c.Client.Bytes), Received: int64(c.Server.Bytes)}
		bytes[c.Server.Cookie] = connections.Bypass{Sent: int64(c.Server.Bytes), Received: int64(c.Client.Bytes)}
	}
	return bytes
}

func (j *Join) connections() ([]Connection, error) {
	j.mu.Lock()
	epoch := j.control.Epoch
	j.mu.Unlock()
	var found []Connection
	var id uint64
	var raw bpf.SocketjoinConnection
	all := j.objects.Connections.Iterate()
	for all.Next(&id, &raw) {
		c := describe(id, &raw)
		var order uint32
		if j.objects.Orders.Lookup(id, &order) != nil {
			order = 0
		}
		c.Verified = c.Verified || order == orderJoin
		// The program notes the reason when the connection next sends.
		switch {
		case c.Released != NotReleased:
		case raw.Epoch != epoch:
			c.Released = RulesChanged
		case order == orderRelease:
			c.Released = Ordered
		}
		if c.Released != NotReleased {
			c.Client.Joined, c.Server.Joined = false, false
		}
		found = append(found, c)
	}
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("list the connections: %w", err)
	}
	return found, nil
}

func describe(id uint64, c *bpf.SocketjoinConnection) Connection {
	end := func(side int) End {
		e, d := &c.Ends[side], &c.Directions[side]
		return End{Local: addressPort(e.Local, e.LocalPort), Remote: addressPort(e.Remote, e.RemotePort), Namespace: e.Netns, Cookie: e.Cookie,
			Joined: d.Joined != 0, Bytes: d.Bytes, Messages: d.Messages, Full: d.Full}
	}
	n := Connection{ID: id, Client: end(0), Server: end(1), Verified: c.Verified != 0, Released: Reason(c.Released)}
	n.NAT = n.Client.Local != n.Server.Remote || n.Client.Remote != n.Server.Local
	return n
}

// addressPort returns an address of the program, whose words have the network's byte order in memory.
func addressPort(words [4]uint32, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(*(*[16]byte)(unsafe.Pointer(&words))).Unmap(), port)
}

// verify looks for a connection whose ends see different addresses in the kernel's table of connections.
func (j *Join) verify(id uint64) error {
	var raw bpf.SocketjoinConnection
	if err := j.objects.Connections.Lookup(id, &raw); err != nil {
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		return err
	}
	c := describe(id, &raw)
	j.mu.Lock()
	tries := j.tries[id]
	j.tries[id]++
	j.mu.Unlock()
	if c.Verified {
		return nil
	}
	if tries >= maxTries {
		return j.objects.Orders.Put(id, orderRelease)
	}
	fits, err := j.table.translates(c.Client.Local, c.Client.Remote, c.Server.Local, c.Server.Remote)
	if err != nil || !fits {
		return err
	}
	// A released connection stays released.
	if err := j.objects.Orders.Update(id, orderJoin, ebpf.UpdateNoExist); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return err
	}
	return nil
}

// sweep verifies connections whose event was lost, removes what closed sockets have left, and gives released
// sockets that have read everything, and sockets that have no other end here, back to TCP.
func (j *Join) sweep() error {
	var id uint64
	var c bpf.SocketjoinConnection
	var gone, unverified []uint64
	present := map[uint64]bool{}
	j.mu.Lock()
	epoch, earlier, released := j.control.Epoch, j.released, map[uint64]time.Time{}
	j.mu.Unlock()
	all := j.objects.Connections.Iterate()
	for all.Next(&id, &c) {
		present[id] = true
		var order uint32
		if c.Released != 0 || c.Epoch != epoch || j.objects.Orders.Lookup(id, &order) == nil && order == orderRelease {
			released[id] = time.Now()
			if since, is := earlier[id]; is {
				released[id] = since
			}
		}
		switch {
		case c.Closed[0] != 0 && c.Closed[1] != 0:
			gone = append(gone, id)
		case c.Verified == 0 && c.Released == 0:
			unverified = append(unverified, id)
		}
	}
	if err := all.Err(); err != nil {
		if errors.Is(err, ebpf.ErrIterationAborted) {
			return nil // next time
		}
		return fmt.Errorf("list the connections: %w", err)
	}
	for _, id := range gone {
		for _, m := range []*ebpf.Map{j.objects.Connections, j.objects.Orders} {
			if err := m.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return err
			}
		}
	}
	var orders []uint64
	orders, err := keys[uint64](j.objects.Orders)
	if err != nil {
		return err
	}
	for _, id := range orders {
		if !present[id] {
			if err := j.objects.Orders.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return err
			}
		}
	}
	if err := errors.Join(j.addresses(), j.limits()); err != nil {
		return err
	}
	for _, id := range unverified {
		if err := j.verify(id); err != nil {
			return err
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for id := range j.tries {
		if !present[id] {
			delete(j.tries, id)
		}
	}
	// A socket that has no other end a second after its connection was made will never have one.
	alone, now := map[uint64]bool{}, time.Now()
	_, err = j.current.drain(func(id uint64) bool {
		since, is := released[id]
		return is && now.Sub(since) > grace
	}, func(cookie uint64) bool {
		alone[cookie] = !j.alone[cookie]
		return j.alone[cookie]
	})
	j.alone, j.released = alone, released
	return err
}

// limits stops the joining while an interface has a limit that joined connections would bypass.
func (j *Join) limits() error {
	found, err := limited(j.links)
	if err != nil {
		return err
	}
	j.mu.Lock()
	changed := (found != "") != (j.control.Stopped != 0)
	j.status.Limited, j.control.Stopped = found, 0
	if found != "" {
		j.control.Stopped = 1
	}
	j.mu.Unlock()
	if changed && found != "" {
		j.ReleaseAll(found)
		return nil
	}
	return j.beat()
}

// addresses writes the addresses of this network namespace, where published ports are reached, into the program's map.
func (j *Join) addresses() error {
	all, err := j.links.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list this machine's addresses: %w", err)
	}
	for _, a := range all {
		ip, ok := netip.AddrFromSlice(a.IP)
		if !ok || ip.IsLoopback() {
			continue
		}
		words := ip.As16()
		if err := j.objects.Here.Put(words[:], j.netns); err != nil {
			return fmt.Errorf("note this machine's address %v: %w", ip, err)
		}
	}
	return nil
}

// ownNamespace returns the cookie of this thread's network namespace.
func ownNamespace() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("identify the network namespace: %w", err)
	}
	return cookie, nil
}

// Close releases all connections and puts everything back. It returns ErrUnread if readers have not read all joined
// bytes: their sockets stay in the kernel's map, pinned, and the change stays in the journal until Undo has removed
// them. Their connections use TCP.
func (j *Join) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	j.mu.Unlock()
	j.cancel()
	j.running.Wait()
	err := j.current.release()
	err = errors.Join(err, j.config.Journal.PutBack(Mechanism, j.config.Dir))
	return errors.Join(err, j.free())
}

// free closes what this process has opened.
func (j *Join) free() error {
	var errs []error
	if j.events != nil {
		j.events.Close()
	}
	if j.table != nil {
		j.table.close()
	}
	if j.links != nil {
		j.links.Close()
	}
	if j.rules != nil {
		errs = append(errs, j.rules.close())
	}
	if j.objects.Sockets != nil {
		errs = append(errs, j.objects.Close())
	}
	return errors.Join(errs...)
}

// ErrUnread means that readers have not read all bytes that were joined.
var ErrUnread = errors.New("joined bytes are not read yet")

// Undo detaches the programs of a Start, and removes the sockets that have read all their joined bytes. If other sockets
// are left, Undo returns ErrUnread, so that the journal keeps the change and Undo is called again: without the pins
// the kernel would drop what these sockets have not read.
func Undo(c journal.Change) error {
	left, err := retire(c.Target, drainFor)
	if err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%w: %d sockets. Their connections use TCP, and the programs stay pinned at %s until the readers have read, or have closed the connections", ErrUnread, left, c.Target)
	}
	return unmount(c.Target)
}

// Available returns nil if this process can join connections. Otherwise the error says why not and what to do.
func Available() error {
	if err := available(); err != nil {
		return fmt.Errorf("join connections between containers: %w", err)
	}
	return nil
}

func available() error {
	if _, err := Root(); err != nil {
		return err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	release := unix.ByteSliceToString(name.Release[:])
	if !recent(release) {
		return fmt.Errorf("the kernel %s does not charge joined bytes to the reader's socket buffer, so they would have no bound: Linux 6.13 or later is needed", release)
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return fmt.Errorf("the kernel does not provide its types (CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("read the capabilities of this process: %w", err)
	}
	if sets[0].Effective&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return errors.New("CAP_SYS_ADMIN is missing: run the daemon or the command as root")
	}
	return nil
}

// recent reports whether a release of Linux is 6.13 or later.
func recent(release string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 6 || major == 6 && minor >= 13
}

// Root returns the folder of the root cgroup (v2).
func Root() (string, error) {
	for _, path := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var stat unix.Statfs_t
		if err := unix.Statfs(path, &stat); err == nil && stat.Type == unix.CGROUP2_SUPER_MAGIC {
			return path, nil
		}
	}
	return "", fmt.Errorf("cgroup v2 is not mounted at /sys/fs/cgroup or /sys/fs/cgroup/unified: mount it: %w", os.ErrNotExist)
}
