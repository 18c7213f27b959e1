package isolation

import (
	"penstock/lab/contest"
	"penstock/lab/hadoop"
)

// DefaultSetup returns the set-up for a small machine, with two modelled hard disks or one
// solid-state disk. The protected job alone keeps the disks half to three quarters busy
// (docs/design/isolation.md). An error names the flag whose value is invalid.
func DefaultSetup(protected, against, kind string) (Setup, error) {
	d, err := contest.NewDisk(kind)
	if err != nil {
		return Setup{}, err
	}
	device := contest.NewDevice(kind)
	s := Setup{
		Against:   against,
		Protected: ProtectedSetup{InputBytes: 288 * mib, Files: 2, WordBytes: 6, Vocabulary: 2000, Reduces: 1, SortMB: 16, CPU: 0},
		Aggressor: AggressorSetup{Bytes: 2048 * mib, Slots: 4, Files: 4, Reduces: 2, CPU: 1},
		Disk:      d,
		Kernel:    contest.DefaultKernel(),
		Penstock: PenstockSetup{AgentInAllPhases: true, QuantumBytes: device.QuantumBytes, Ahead: device.Ahead, BacklogBytes: device.BacklogBytes,
			ProtectedWeight: 32, AggressorWeight: 1, ClientsWeight: 32,
			DepthMin: device.DepthMin, DepthMax: device.DepthMax, DepthStart: device.DepthStart, DepthGain: device.DepthGain,
			ReferenceRead: device.ReferenceRead, ReferenceWrite: device.ReferenceWrite},
		Hadoop: HadoopSetup{Version: hadoop.DefaultVersion, Replication: 1, BlockBytes: 8 * mib},
	}
	if against == teraSort {
		// Each map sorts its part of the input, so with more maps, each map spills less often. On
		// one CPU, TeraSort runs longer with half the bytes than the other aggressors do with all.
		s.Aggressor.Bytes, s.Aggressor.Files = 1024*mib, 8
	}
	if kind == SSD {
		// Longer words cost less CPU per byte, so WordCount reads at half to three quarters
		// of the faster disk's rate.
		s.Protected.InputBytes, s.Protected.WordBytes = 640*mib, 12
		s.Aggressor.Bytes = 4096 * mib // outlasts WordCount at twice the rate
		if against == teraSort {
			s.Aggressor.Bytes = 1536 * mib
		}
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

// protect makes job, which is not WordCount, the protected job. Such jobs write as much to local
// disks as to HDFS, so their intermediate data is on the contested disks.
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

// Where spills are governed, the daemon uses its default bound on a flow's dirty data, and the kernel
// has larger dirty limits:
//
//   - In native phases the kernel starts to write dirty pages out when dirtyIntermediate bytes
//     are dirty. The two contested disks write that much in ten seconds, as on a node with faster
//     disks and more memory. The dirty limit is twice as much. The kernel starts to delay writers
//     midway between these two amounts, at 384 MiB.
//   - Under Penstock the kernel starts to write dirty pages out only just below the dirty limit.
//     The daemon's default is three quarters of that amount, as the operator's guide recommends.
const dirtyIntermediate = 256 * mib

// SetIntermediate chooses whether intermediate data is on the contested disks. With intermediate
// data, TeraSort moves three to four times as many bytes on these disks, so an aggressor TeraSort
// sorts half as many.
func (s *Setup) SetIntermediate(on bool) {
	if on == s.Intermediate {
		return
	}
	s.Intermediate, s.Penstock.BacklogBytes = on, contest.Backlog
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
