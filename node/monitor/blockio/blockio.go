// Package blockio finds the users of a device's I/O: for each process and cgroup, the bytes that
// it read and wrote according to the kernel.
//
// Problem: the device's own counters show how much I/O was foreign, but not which process caused
// it, and an operator has to find that process. /proc/PID/io counts for all devices together, and
// attributes page cache writes to the process that dirtied the pages, at that time. The cgroups'
// counters (blkio.throttle.io_service_bytes, io.stat) are per device, but know only cgroups, and a
// plain machine has only one. Choice: four small BPF programs (bpf/) count at the moment at which a
// thread passes its I/O to the block layer. They need CAP_BPF, CAP_PERFMON and a kernel 5.14 or
// later that provides its type information (BTF). Without these, the daemon shows only the totals.
//
// Each user is the process in whose context the I/O was requested, together with the cgroup that
// the kernel charges for it. So reads and direct writes belong to their process, and readahead to
// the reader. Bytes written through the page cache are written out by the process that flushes
// them: the writer itself (fsync), the daemon (drained), or a kernel thread. The name is then
// that of the flushing thread. The cgroup is that of the process that dirtied the page if the
// kernel knows it (cgroup v2 with the memory and io controllers), otherwise the root.
//
// The package cannot find the process for which a kernel thread or a server does I/O (a journal,
// dm-crypt on a governed disk, btrfs, nfsd, loop devices). For a bio that blk-throttle held back,
// the cgroup is right and the process is a kernel worker. Device time is 0 on devices without
// requests of their own (dm, md). Bytes count when they are passed to the block layer: a little
// before the device's own counters contain them, and even if the I/O then fails.
//
// The same programs count the latencies of requests, from issue to completion, by cgroup (Latency). The
// package adds them up by the owner of the cgroup: an operator then sees who waits how long at the
// device, also for tails that a mean hides. Under cgroup v1, the cgroup is that of the hierarchy of
// blkio: a container that has none there counts with the cgroup above it.
//
// The daemon's own I/O is recognised by its process: readahead(2), sync_file_range(2) and page
// faults queue their I/O in the calling thread, whichever thread issues the request later.
package blockio

import "time"

// User holds the I/O of one process, or of the kernel's threads with one name, on a device in one
// cgroup. Counts begin when the watch is opened or when the user appears, and never decrease.
type User struct {
	Device uint32 // see Number
	PID    uint32 // 0: a kernel thread, known by its name
	Name   string // chosen by the process itself, at most 15 bytes; valid UTF-8
	Cgroup string // path below the hierarchy's root, "/" for the root; empty: not known
	Own    bool   // the process is this daemon

	Pieces [2]int64 // passed to the block layer; read, written
	Bytes  [2]int64
	Time   [2]time.Duration // sum over requests from issue to completion; overlapping requests count fully

	key key
}

// key identifies a user, even after its name has changed.
type key struct {
	device, pid uint32
	cgroup      uint64
	thread      string
}

// Lost counts I/O of users beyond the bounds.
type Lost struct{ Pieces, Bytes int64 }

// Table is the result of one read.
type Table struct {
	Users []User          // in no order
	Lost  map[uint32]Lost // by device
}
