package node

import (
	"cmp"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	prom "github.com/prometheus/procfs"

	"penstock/node/monitor/processes"
	"penstock/node/status"
	"penstock/wire"
)

// This file reports what a characterisation of applications needs: the CPU time and the memory of each
// application's processes, which streams use the network, and the size of the machine.

// maxStatusApplications is the maximum number of applications in the status document.
const maxStatusApplications = 1024

// applications adds up the processes of each application, container or unit.
func (w *processWatch) applications() status.Applications {
	out := status.Applications{Top: []status.Application{}}
	if w.Watch == nil {
		return out
	}
	return sumApplications(w.Snapshot(processes.MaxGroups))
}

func sumApplications(s processes.Snapshot) status.Applications {
	out := status.Applications{Top: []status.Application{}, Looked: s.Looked}
	at := map[string]int{}
	for _, g := range s.Sums {
		name := cmp.Or(g.Flow, g.Owner.ID, g.Owner.Pod)
		i, known := at[name]
		if !known {
			i = len(out.Top)
			at[name] = i
			out.Top = append(out.Top, status.Application{Name: name})
		}
		a := &out.Top[i]
		a.Containers++
		a.Processes, a.CPUNS, a.MemoryBytes = a.Processes+g.Processes, a.CPUNS+g.CPU.Nanoseconds(), a.MemoryBytes+g.Memory
		a.Bytes = status.Pair{Read: a.Bytes.Read + g.Read, Written: a.Bytes.Written + g.Written}
	}
	slices.SortFunc(out.Top, func(a, b status.Application) int {
		return cmp.Or(cmp.Compare(min(1, b.Processes), min(1, a.Processes)), cmp.Compare(b.CPUNS, a.CPUNS), strings.Compare(a.Name, b.Name))
	})
	if out.LeftOff = max(0, len(out.Top)-maxStatusApplications); out.LeftOff > 0 {
		out.Top = out.Top[:maxStatusApplications]
	}
	return out
}

// thisMachine returns the size of this machine. What cannot be read is 0.
func thisMachine() status.Machine {
	m := status.Machine{Cores: runtime.NumCPU(), NetworkBytes: networkSpeed("/sys")}
	if fs, err := prom.NewDefaultFS(); err == nil {
		if info, err := fs.Meminfo(); err == nil && info.MemTotalBytes != nil {
			m.MemoryBytes = int64(*info.MemTotalBytes)
		}
		// The daemon may be restricted to some of the cores.
		if info, err := fs.CPUInfo(); err == nil && len(info) > 0 {
			m.Cores = len(info)
		}
	}
	return m
}

// networkSpeed returns the sum of the speeds of the machine's own network interfaces that are up, in
// bytes per second in one direction. The speed of a virtual interface (without a device) is not one
// of hardware.
func networkSpeed(sysfs string) (bytesPerSecond int64) {
	dirs, _ := filepath.Glob(filepath.Join(sysfs, "class/net/*/device"))
	for _, dir := range dirs {
		read := func(name string) string {
			text, _ := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
			return strings.TrimSpace(string(text))
		}
		const megabit = 1e6 / 8
		if speed, err := strconv.ParseInt(read("speed"), 10, 32); err == nil && speed > 0 && read("operstate") == "up" {
			bytesPerSecond += speed * megabit
		}
	}
	return bytesPerSecond
}

// remote reports whether the bytes of a stream go to another machine or come from one. A DataNode
// names the ends of its client's connection; data that a NodeManager sends counts as remote unless
// it names ends of one address.
func (r *registration) remote(m wire.Open) bool {
	server, err := netip.ParseAddrPort(m.Server)
	client, err2 := netip.ParseAddrPort(m.Client)
	if err != nil || err2 != nil {
		return m.Kind == wire.Network
	}
	return server.Addr().Unmap() != client.Addr().Unmap()
}
