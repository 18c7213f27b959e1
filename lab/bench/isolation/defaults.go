package isolation

import "penstock/lab/hadoop"

// DefaultSetup is the experiment at the scale of a small machine: two modelled
// hard disks, or one solid-state disk, that the protected job alone keeps half to
// three quarters busy (docs/design/isolation.md). An error says which flag is wrong.
func DefaultSetup(protected, against, kind string) (Setup, error) {
	d, err := newDisk(kind)
	if err != nil {
		return Setup{}, err
	}
	s := Setup{
		Against:   against,
		Protected: ProtectedSetup{InputBytes: 288 * mib, Files: 2, WordBytes: 6, Vocabulary: 2000, Reduces: 1, SortMB: 16, CPU: 0},
		Aggressor: AggressorSetup{Bytes: 2048 * mib, Slots: 4, Files: 4, Reduces: 2, CPU: 1},
		Disk:      d,
		Kernel: KernelSetup{Scheduler: "mq-deadline", DirtyBytes: 64 * mib, DirtyBackgroundBytes: 32 * mib,
			DirtyExpireCentisecs: 3000},
		Penstock: PenstockSetup{AgentInAllPhases: true, QuantumBytes: 2 * mib, Ahead: 2, BacklogBytes: backlog,
			ProtectedWeight: 32, AggressorWeight: 1, ClientsWeight: 32,
			DepthMin: 1, DepthMax: 12, DepthStart: 2, DepthGain: 0.5,
			ReferenceRead:  LatencySetup{FixedMillis: 20, PerMiBMillis: 180},
			ReferenceWrite: LatencySetup{FixedMillis: 20, PerMiBMillis: 180}},
		Hadoop: HadoopSetup{Version: hadoop.DefaultVersion, Replication: 1, BlockBytes: 8 * mib},
	}
	if against == teraSort {
		// A map sorts what it has read: more maps, fewer spills each; and on one
		// CPU half the bytes last longer than those of the other aggressors.
		s.Aggressor.Bytes, s.Aggressor.Files = 1024*mib, 8
	}
	if kind == SSD {
		// Longer words cost less CPU a byte, so that WordCount reads what half to
		// three quarters of the faster disk give.
		s.Protected.InputBytes, s.Protected.WordBytes = 640*mib, 12
		s.Aggressor.Bytes = 4096 * mib // to outlast it at twice the rate
		if against == teraSort {
			s.Aggressor.Bytes = 1536 * mib
		}
		// Nothing seeks, so a smaller quantum loses nothing. The references are, as
		// on the hard disk, the time of two quanta, the least depth that keeps the
		// disk busy, and a tenth: over 8 channels a quantum is two rounds of 64 KiB
		// each, 28 ms read and 46 ms written.
		s.Penstock.QuantumBytes = mib
		s.Penstock.ReferenceRead = LatencySetup{FixedMillis: 4, PerMiBMillis: 58}
		s.Penstock.ReferenceWrite = LatencySetup{FixedMillis: 6, PerMiBMillis: 95}
	}
	if against == wordCount {
		s.Aggressor.Bytes, s.Aggressor.Files, s.Aggressor.Reduces = 2048*mib, 8, 1
		s.Aggressor.WordBytes, s.Aggressor.Vocabulary, s.Aggressor.SortMB = 12, 2000, 16
	}
	if protected != wordCount {
		s.protect(protected)
	}
	return s, nil
}

// protect makes another job than WordCount the protected one. They keep as much on
// local disks as in HDFS, so that belongs to what is contested.
func (s *Setup) protect(job string) {
	s.SetIntermediate(true)
	s.Protected = ProtectedSetup{Job: job, CPU: s.Protected.CPU}
	switch p := &s.Protected; job {
	case teraSort:
		p.InputBytes, p.Files, p.Slots, p.Reduces = 128*mib, 4, 2, 2
	case tpchQ9, tpchQ21:
		p.Scale, p.Files, p.Reduces, p.Partitions = 1, 4, 1, 4
	}
}

// backlog is how far a flow may be ahead of a disk in the page cache, where spills are
// not governed. Where they are, everything is as the daemon has it by default, and the
// page cache may hold, natively as under Penstock, what the two contested disks write in
// ten seconds before the kernel writes by itself: as it is on a node with faster disks and
// more memory. dirtyIntermediate is that. From there to the limit, twice as much, the
// kernel holds nobody up to half of the way; under Penstock that is what the daemon uses,
// three quarters of where the kernel then begins, as the operator's guide says.
const (
	backlog           = 12 * mib
	dirtyIntermediate = 256 * mib
)

// SetIntermediate puts intermediate data on the contested disks, or not. TeraSort then
// moves three to four times as many bytes there.
func (s *Setup) SetIntermediate(on bool) {
	if on == s.Intermediate {
		return
	}
	s.Intermediate, s.Penstock.BacklogBytes = on, backlog
	s.Penstock.DirtyBackgroundBytes, s.Penstock.DirtyExpireCentisecs, s.Penstock.DirtySharePercent = 0, 0, 0
	s.Kernel.DirtyBytes, s.Kernel.DirtyBackgroundBytes = 64*mib, 32*mib
	if on {
		s.Penstock.BacklogBytes, s.Penstock.DirtyBackgroundBytes = 0, dirtyIntermediate*2-12*mib
		s.Penstock.DirtyExpireCentisecs, s.Penstock.DirtySharePercent = 12000, 80/s.Disk.DataNodes
		s.Kernel.DirtyBytes, s.Kernel.DirtyBackgroundBytes = 2*dirtyIntermediate, dirtyIntermediate
	}
	if s.Against != teraSort {
		return
	}
	if on {
		s.Aggressor.Bytes /= 2
	} else {
		s.Aggressor.Bytes *= 2
	}
}
