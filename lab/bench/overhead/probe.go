package overhead

import (
	"fmt"
	"os"
	"strconv"

	"penstock/lab/disk"
	"penstock/lab/proc"
)

// Probe adds the machine's properties and restrictions to a setup.
func Probe(s Setup) Setup {
	m := proc.ThisMachine()
	s.KernelRelease, s.CPUs, s.MemoryBytes = m.KernelRelease, len(m.CPUs), m.MemoryBytes
	if s.CPUs >= 2 {
		s.ClientCPU, s.DataNodeCPU = strconv.Itoa(m.CPUs[0]), strconv.Itoa(m.CPUs[1])
	}
	s.Modelled = true
	if reason := disk.Available(); reason != nil {
		s.Modelled = false
		s.Notes = append(s.Notes, "No disks in memory: "+reason.Error()+". Both DataNodes are on the folder's own disk, so the disk's speed affects the figures.")
	}
	if os.Geteuid() != 0 {
		s.Notes = append(s.Notes, "Not root: the kernel's dirty limits are left unchanged.")
	}
	return s
}

// ProbeYARN adds the machine's properties to a setup. It returns an error if disks in memory are
// impossible, because the speed of other disks would determine a job's run time. The kernel's dirty
// limits have its default proportions, a fifth and a tenth of the memory, so that natively some
// spills never reach a disk, which is part of the comparison.
func ProbeYARN(s YARNSetup) (YARNSetup, error) {
	if err := disk.Available(); err != nil {
		return s, fmt.Errorf("no disks in memory: %w", err)
	}
	m := Probe(Setup{})
	s.KernelRelease, s.CPUs, s.MemoryBytes, s.Notes = m.KernelRelease, m.CPUs, m.MemoryBytes, m.Notes
	s.DirtyBytes, s.DirtyBackgroundBytes = s.MemoryBytes/5/mib*mib, s.MemoryBytes/10/mib*mib
	return s, nil
}
