// Package characterise follows one application on its nodes, and writes what it has used to a file that
// can be read again: `penstock app profile` and `penstock app pair`.
//
// Problem: an application runs for minutes or hours on several nodes, and the command that follows it
// may be interrupted. Choice: a file of JSON lines, one for each reading of a node, that is complete
// after each line. What the figures mean is decided by core/character.
package characterise

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"penstock/core/character"
)

// Prefix is how the first line of a file begins.
const Prefix = `{"penstock_application_profile":`

// Version of the file.
const Version = 1

// Bounds of a file.
const (
	maxLine    = 1 << 20 // bytes
	maxSamples = 2_000_000
	maxNodes   = 1024
	maxFigure  = 1 << 60
)

// Header is the first line of a file.
type Header struct {
	Version     int       `json:"penstock_application_profile"`
	Application string    `json:"application"`
	Started     time.Time `json:"started"`
	Nodes       []Node    `json:"nodes"`
}

// Node is a node in the header. 0 stands for a capacity that is not known.
type Node struct {
	Name         string `json:"name"` // its daemon's address
	Cores        int    `json:"cores"`
	MemoryBytes  int64  `json:"memory_bytes"`
	Disks        int    `json:"disks"`
	NetworkBytes int64  `json:"network_bytes_per_second"`
}

// Line is one reading of one node: what the application has used since the start.
type Line struct {
	Node         int   `json:"node"` // index in the header
	AtNS         int64 `json:"at_ns"`
	CPUNS        int64 `json:"cpu_ns"`
	MemoryBytes  int64 `json:"memory_bytes"` // at that time
	ReadBytes    int64 `json:"read_bytes"`
	WrittenBytes int64 `json:"written_bytes"`
	DeviceNS     int64 `json:"device_ns"`
	NetworkBytes int64 `json:"network_bytes"`
}

func (l Line) sample() character.Sample {
	return character.Sample{At: time.Duration(l.AtNS), CPU: time.Duration(l.CPUNS), Memory: l.MemoryBytes,
		Read: l.ReadBytes, Written: l.WrittenBytes, Disk: time.Duration(l.DeviceNS), Network: l.NetworkBytes}
}

// File is a file that was read.
type File struct {
	Header
	Samples []character.Node
	Torn    bool // its last line is incomplete, as after a crash, and was left out
}

// Read reads a file. Its errors name the line.
func Read(r io.Reader) (*File, error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	if !in.Scan() {
		return nil, cmpError(in.Err(), errors.New("it is empty: write it with penstock app profile APP --out FILE"))
	}
	f := &File{}
	if err := json.Unmarshal(in.Bytes(), &f.Header); err != nil || f.Version == 0 {
		return nil, errors.New("line 1: not a profile of an application: write it with penstock app profile APP --out FILE")
	}
	if f.Version != Version {
		return nil, fmt.Errorf("line 1: the profile has version %d, but this penstock reads version %d", f.Version, Version)
	}
	if len(f.Nodes) == 0 || len(f.Nodes) > maxNodes {
		return nil, fmt.Errorf("line 1: %d nodes: a profile has 1 to %d", len(f.Nodes), maxNodes)
	}
	for _, n := range f.Nodes {
		if n.Cores < 0 || n.MemoryBytes < 0 || n.Disks < 0 || n.NetworkBytes < 0 || max(int64(n.Cores), n.MemoryBytes, int64(n.Disks), n.NetworkBytes) > maxFigure/maxNodes {
			return nil, fmt.Errorf("line 1: node %q: a capacity is negative or too large", n.Name)
		}
		f.Samples = append(f.Samples, character.Node{Name: n.Name, Machine: character.Machine{Cores: n.Cores, Memory: n.MemoryBytes, Disks: n.Disks, Network: n.NetworkBytes}})
	}
	var torn error
	for number := 2; in.Scan(); number++ {
		if torn != nil {
			return nil, torn
		}
		if number > maxSamples {
			return nil, fmt.Errorf("line %d: a profile has at most %d lines", number, maxSamples)
		}
		var l Line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			torn = fmt.Errorf("line %d: %w", number, err) // an error unless it is the last line
			continue
		}
		if err := f.add(l); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	f.Torn = torn != nil
	return f, in.Err()
}

func cmpError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (f *File) add(l Line) error {
	if l.Node < 0 || l.Node >= len(f.Samples) {
		return fmt.Errorf("node %d: the header has %d nodes", l.Node, len(f.Samples))
	}
	figures := []int64{l.AtNS, l.CPUNS, l.MemoryBytes, l.ReadBytes, l.WrittenBytes, l.DeviceNS, l.NetworkBytes}
	for _, v := range figures {
		if v < 0 || v > maxFigure/maxNodes {
			return errors.New("a figure is negative or too large")
		}
	}
	n, s := &f.Samples[l.Node], l.sample()
	if len(n.Samples) > 0 {
		last := n.Samples[len(n.Samples)-1]
		if s.At <= last.At {
			return fmt.Errorf("node %q: the line is not later than the one before", n.Name)
		}
		if s.CPU < last.CPU || s.Read < last.Read || s.Written < last.Written || s.Disk < last.Disk || s.Network < last.Network {
			return fmt.Errorf("node %q: a counter decreases", n.Name)
		}
	}
	n.Samples = append(n.Samples, s)
	return nil
}

// writer writes a file, line by line.
type writer struct{ out io.Writer }

func (w writer) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.out.Write(append(text, '\n'))
	return err
}

// percent returns a part for people.
func percent(x float64) string { return fmt.Sprintf("%.0f %%", math.Round(100*x)) }
