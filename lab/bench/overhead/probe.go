package overhead

import (
	"fmt"
	"os"
	"strconv"

	"penstock/lab/disk"
	"penstock/lab/proc"
)

// Probe completes a setup with what the machine is and what it lacks.
func Probe(s Setup) Setup {
	m := proc.ThisMachine()
	s.KernelRelease, s.CPUs, s.MemoryBytes = m.KernelRelease, len(m.CPUs), m.MemoryBytes
	if s.CPUs >= 2 {
		s.ClientCPU, s.DataNodeCPU = strconv.Itoa(m.CPUs[0]), strconv.Itoa(m.CPUs[1])
	}
	s.Modelled = true
	if reason := disk.Available(); reason != nil {
		s.Modelled = false
		s.Notes = append(s.Notes, "No disks in memory: "+reason.Error()+". Both DataNodes are on the folder's own disk, whose speed is in the figures.")
	}
	if os.Geteuid() != 0 {
		s.Notes = append(s.Notes, "Not root: the kernel's dirty limits are as found.")
	}
	return s
}

// ProbeYARN completes a setup with what the machine is. It is an error where there
// can be no disks in memory: other disks' speed would be most of a job's run time.
// The kernel's dirty limits are its own proportions, a fifth and a tenth of the memory: what of
// spills never reaches a disk natively is part of what is compared.
func ProbeYARN(s YARNSetup) (YARNSetup, error) {
	if err := disk.Available(); err != nil {
		return s, fmt.Errorf("no disks in memory: %w", err)
	}
	m := Probe(Setup{})
	s.KernelRelease, s.CPUs, s.MemoryBytes, s.Notes = m.KernelRelease, m.CPUs, m.MemoryBytes, m.Notes
	s.DirtyBytes, s.DirtyBackgroundBytes = s.MemoryBytes/5/mib*mib, s.MemoryBytes/10/mib*mib
	return s, nil
}
