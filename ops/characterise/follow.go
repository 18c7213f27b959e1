package characterise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"penstock/core/character"
	"penstock/node/status"
)

// quietTime is the default of Follower.Quiet.
const quietTime = 20 * time.Second

// networkDevice is the device that stands for what NodeManagers send. Its time is no disk's.
const networkDevice = "network"

// total adds up the increases of one counter of a daemon. A counter that is smaller than before has
// started again at 0. Counters that exist at the first reading count from there.
type total struct {
	last map[string]int64
	sum  int64
}

func (t *total) add(key string, value int64, first bool) {
	if t.last == nil {
		t.last = map[string]int64{}
	}
	before := t.last[key]
	switch {
	case first:
		before = value
	case value < before:
		before = 0
	}
	t.sum += value - before
	t.last[key] = value
}

// meter takes the documents of one node.
type meter struct {
	application                        string
	begun                              bool
	cpu, read, written, device, remote total
	memory                             int64
	looked                             time.Time
	flows                              map[string]bool // devices on which the application has a flow
	busy                               bool            // it had processes or streams at the last reading
}

// take takes a document. fresh reports that it has new figures of processes, so that a line is due.
func (m *meter) take(d *status.Document) (l Line, fresh bool) {
	first := !m.begun
	m.begun, m.busy, m.memory = true, false, 0
	for _, a := range d.Applications.Top {
		if a.Name == m.application {
			m.cpu.add("", a.CPUNS, first)
			m.memory, m.busy = a.MemoryBytes, a.Processes > 0
		}
	}
	if m.flows == nil {
		m.flows = map[string]bool{}
	}
	for _, dev := range d.Devices {
		for _, f := range dev.Flows {
			if f.Name != m.application {
				continue
			}
			m.busy = m.busy || f.Streams > 0
			for _, k := range f.Kinds {
				m.remote.add(dev.Name+" "+k.Kind, k.RemoteBytes, first)
			}
			if dev.Name == networkDevice {
				continue
			}
			m.flows[dev.Name] = true
			m.read.add(dev.Name, f.Bytes.Read, first)
			m.written.add(dev.Name, f.Bytes.Written, first)
			m.device.add(dev.Name, f.ServiceNS, first)
		}
		// Of one device, either the flow counts or the foreign I/O of the application's processes: some
		// of a flow's bytes are moved by the kernel, and would count twice.
		if m.flows[dev.Name] {
			continue
		}
		var sum status.ForeignUser
		found := false
		for _, u := range dev.ForeignUsers.Top {
			if !u.Owner.Delegated && (u.Owner.Application == m.application || u.Owner.ID == m.application || u.Owner.Pod == m.application) {
				sum.Bytes.Read, sum.Bytes.Written, sum.DeviceNS = sum.Bytes.Read+u.Bytes.Read, sum.Bytes.Written+u.Bytes.Written, sum.DeviceNS+u.DeviceNS
				found = true
			}
		}
		if found {
			m.read.add(dev.Name+" foreign", sum.Bytes.Read, first)
			m.written.add(dev.Name+" foreign", sum.Bytes.Written, first)
			m.device.add(dev.Name+" foreign", sum.DeviceNS, first)
		}
	}
	fresh = first || d.Applications.Looked.After(m.looked) || d.Applications.Looked.IsZero()
	m.looked = d.Applications.Looked
	return Line{CPUNS: m.cpu.sum, MemoryBytes: m.memory, ReadBytes: m.read.sum, WrittenBytes: m.written.sum, DeviceNS: m.device.sum, NetworkBytes: m.remote.sum}, fresh
}

// Follower follows an application.
type Follower struct {
	Application string
	Addresses   []string      // of the nodes' daemons
	Period      time.Duration // between two readings
	Network     int64         // bytes per second of a node whose daemon does not know it; 0: not known
	// Memory is the memory in bytes that applications may use on a node, such as what its NodeManager offers; 0: all of the node's.
	Memory   int64
	Out      io.Writer // the file
	Progress func(text string)
	// Quiet is the time without processes, streams and use after which the application has ended; default quietTime.
	Quiet time.Duration
}

// Run follows the application until it ends or ctx does. A node that does not answer later on is
// passed over, and said so; all must answer at the start.
func (f Follower) Run(ctx context.Context) (*File, error) {
	file := &File{Header: Header{Version: Version, Application: f.Application, Started: time.Now().UTC()}}
	var meters []*meter
	var documents []*status.Document
	for _, address := range f.Addresses {
		d, err := status.Fetch(ctx, address)
		if err != nil {
			return nil, err
		}
		n := Node{Name: address, Cores: d.Machine.Cores, MemoryBytes: d.Machine.MemoryBytes, NetworkBytes: d.Machine.NetworkBytes}
		for _, dev := range d.Devices {
			if dev.Name != networkDevice {
				n.Disks++
			}
		}
		if f.Memory > 0 {
			n.MemoryBytes = f.Memory
		}
		if n.NetworkBytes == 0 {
			n.NetworkBytes = f.Network
		}
		file.Nodes = append(file.Nodes, n)
		file.Samples = append(file.Samples, character.Node{Name: address, Machine: character.Machine{Cores: n.Cores, Memory: n.MemoryBytes, Disks: n.Disks, Network: n.NetworkBytes}})
		meters, documents = append(meters, &meter{application: f.Application}), append(documents, d)
	}
	out := writer{f.Out}
	if err := out.line(file.Header); err != nil {
		return nil, err
	}
	ticker := time.NewTicker(f.Period)
	defer ticker.Stop()
	seen, last, lastUse := false, time.Now(), Line{}
	for {
		use, busy := Line{}, false
		for i, m := range meters {
			d := documents[i]
			if d == nil {
				continue
			}
			l, fresh := m.take(d)
			use.CPUNS, use.ReadBytes, use.WrittenBytes, use.NetworkBytes = use.CPUNS+l.CPUNS, use.ReadBytes+l.ReadBytes, use.WrittenBytes+l.WrittenBytes, use.NetworkBytes+l.NetworkBytes
			busy = busy || m.busy
			l.Node, l.AtNS = i, max(0, time.Since(file.Started).Nanoseconds())
			if fresh && file.add(l) == nil {
				if err := out.line(l); err != nil {
					return nil, err
				}
			}
		}
		if busy || use != lastUse {
			seen, last, lastUse = seen || busy, time.Now(), use
		}
		state := "not at work yet"
		if seen {
			state = fmt.Sprintf("CPU %.0f s, disk %.0f MB, network %.0f MB", float64(use.CPUNS)/1e9, float64(use.ReadBytes+use.WrittenBytes)/1e6, float64(use.NetworkBytes)/1e6)
		}
		f.Progress(fmt.Sprintf("%v  %s: %s", time.Since(file.Started).Round(time.Second), f.Application, state))
		if seen && time.Since(last) > cmp.Or(f.Quiet, quietTime) {
			return file, nil
		}
		select {
		case <-ctx.Done():
			return file, nil
		case <-ticker.C:
		}
		for i, address := range f.Addresses {
			d, err := status.Fetch(ctx, address)
			if err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
				f.Progress(err.Error())
			}
			documents[i] = d
			if err != nil {
				documents[i] = nil
			}
		}
	}
}
