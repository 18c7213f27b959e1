// Package blockio finds the users of a device's I/O: for each process and cgroup the
// bytes that it read and wrote, as the kernel saw them.
//
// Problem: the device's own counters say how much was foreign and not whose, and an
// operator has to know whom to ask. /proc/PID/io counts for all devices together and
// leaves page cache writes with whoever dirtied them, whenever; the cgroups'
// counters (blkio.throttle.io_service_bytes, io.stat) are per device but know only
// cgroups, and a plain machine has one. Choice: four small BPF programs (bpf/), which
// count at the moment at which a thread hands the block layer its I/O. They need
// CAP_BPF and CAP_PERFMON and a kernel that has its types (BTF), 5.14 or later;
// where those are missing the daemon goes on with the totals.
//
// What it tells: the process in whose context the I/O was asked for, and the
// cgroup that the kernel charges for it. Reads and direct writes are thus their
// process's; readahead is its reader's. What was written through the page cache is
// written out by whoever flushes it: the process itself (fsync), the daemon
// (drained), or a kernel thread; then the name is the thread's, and the cgroup
// that of whoever dirtied the page where the kernel knows it (cgroup v2 with the
// memory and io controllers), else the root.
//
// What it does not tell: who stands behind a kernel thread or a server that does
// I/O for others (a journal, dm-crypt above a governed disk, btrfs, nfsd, loop
// devices); of a bio that blk-throttle held back, the cgroup is right and
// the process a kernel worker. Device time is left at 0 on devices without requests
// of their own (dm, md). Bytes count when they are handed to the block layer: a
// little before the device's own counters have them, and also where they fail.
//
// The daemon's own is known by its process: readahead(2), sync_file_range(2) and
// page faults queue their I/O in the thread that makes the call, whoever issues
// the request later.
package blockio

import "time"

// User is what one process, or the kernel's threads of one name, had a device do
// in one cgroup. Counts begin with the watch or with the user, and only grow.
type User struct {
	Device uint32 // see Number
	PID    uint32 // 0: a kernel thread, known by its name
	Name   string // the process's own word for itself, at most 15 bytes; valid UTF-8
	Cgroup string // path below the hierarchy's root, "/" for the root; empty: not known
	Own    bool   // this process

	Pieces [2]int64 // handed to the block layer; read, written
	Bytes  [2]int64
	Time   [2]time.Duration // sum over requests from issue to completion: overlapping ones count each

	key key
}

// key is what stays of a user when its name changes.
type key struct {
	device, pid uint32
	cgroup      uint64
	thread      string
}

// Lost is what did not fit the bounds.
type Lost struct{ Pieces, Bytes int64 }

// Table is a reading.
type Table struct {
	Users []User          // in no order
	Lost  map[uint32]Lost // by device
}
