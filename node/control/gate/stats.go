package gate

// Stats are counts of what the gate has done since it started.
type Stats struct {
	// Passed is the number of operations of processes that no rule selects or that are in the pass list.
	Passed uint64
	// Resident is the number of reads by selected processes that were in the page cache.
	Resident uint64
	// Held is the number of operations that were reported to the daemon. Holding is the number of those
	// that wait now.
	Held, Holding uint64
	// Mapped counts mmap(2), and Resized counts truncate(2) and fallocate(2), of selected processes. These
	// operations pass, because a wait would not govern the device I/O that they cause.
	Mapped, Resized uint64
	// LetGoFull is the number of operations that passed because too many waited already, or because the
	// daemon had too many open files. LetGoOpen is the number of operations that passed because the
	// daemon's heartbeat was late or a file system was released. LetGoOld is the number of operations that
	// passed because they had waited for Options.HoldAtMost.
	LetGoFull, LetGoOpen, LetGoOld uint64
	// Unidentified is the number of operations whose process could not be examined. They pass.
	Unidentified uint64
	// UnknownOp is the number of reported operations whose direction is Unknown.
	UnknownOp uint64
	// Overflows is the number of times that the kernel's queue of events was full. Operations that did
	// not fit passed.
	Overflows uint64
	// Gone is the number of held operations whose process was killed before the answer.
	Gone uint64
	// Lookups is the number of times that a thread was examined.
	Lookups uint64
	// Ignored is the number of times that the gate asked the kernel to ignore a file for 100 ms.
	Ignored uint64
	// Openings is the number of times that the gate removed its marks because the daemon's heartbeat
	// was late.
	Openings uint64
	// Open reports whether the gate has removed its marks and waits for the daemon's heartbeat.
	Open bool
}

// fields returns the counters in the order in which a frame has them.
func (s *Stats) fields() []*uint64 {
	return []*uint64{
		&s.Passed, &s.Resident, &s.Held, &s.Holding, &s.Mapped, &s.Resized,
		&s.LetGoFull, &s.LetGoOpen, &s.LetGoOld, &s.Unidentified, &s.UnknownOp,
		&s.Overflows, &s.Gone, &s.Lookups, &s.Ignored, &s.Openings,
	}
}
