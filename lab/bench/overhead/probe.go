package overhead

import (
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"penstock/lab/disk"
)

// Probe completes a setup with what the machine is and what it lacks.
func Probe(s Setup) Setup {
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		s.KernelRelease = unix.ByteSliceToString(u.Release[:])
	}
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		s.CPUs = set.Count()
		s.ClientCPU, s.DataNodeCPU = twoOf(set)
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		s.MemoryBytes = int64(info.Totalram) * int64(info.Unit)
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

// twoOf names the first two CPUs of a set, "" if it has fewer.
func twoOf(set unix.CPUSet) (first, second string) {
	var found []string
	for cpu := 0; len(found) < 2 && cpu < 8*int(unsafe.Sizeof(set)); cpu++ {
		if set.IsSet(cpu) {
			found = append(found, strconv.Itoa(cpu))
		}
	}
	if len(found) < 2 {
		return "", ""
	}
	return found[0], found[1]
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
