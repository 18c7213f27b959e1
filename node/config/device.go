package config

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"penstock/core/arbiter"
	"penstock/core/depth"
	"penstock/node/device"
	"penstock/node/profile"
	"penstock/settings"
	"penstock/settings/plain"
)

// Device is device.Config in the form of the settings file. Values that are not set have the
// default for the kind of device.
type Device struct {
	// Profile is the path of the device's profile, which `penstock profile` writes. The profile
	// provides the costs, and also the reference latencies and the quantum unless they are set
	// here.
	Profile   string            `yaml:"profile"`
	Algorithm string            `yaml:"algorithm"`
	Quantum   settings.Bytes    `yaml:"quantum"`
	Ahead     int               `yaml:"ahead"`
	Backlog   settings.Bytes    `yaml:"backlog"`
	Dirty     settings.Bytes    `yaml:"dirty"`
	Run       settings.Bytes    `yaml:"run"`
	Depth     Depth             `yaml:"depth"`
	Period    settings.Duration `yaml:"period"`
	MaxWait   settings.Duration `yaml:"max_wait"`
	FlushAge  settings.Duration `yaml:"flush_age"`
	Lazy      settings.Bytes    `yaml:"lazy"`
	LazyAge   settings.Duration `yaml:"lazy_age"`
	LazyFiles int               `yaml:"lazy_files"`
	Staged    settings.Bytes    `yaml:"staged"`
	Stuck     settings.Duration `yaml:"stuck_after"`
	MaxFlows  int               `yaml:"max_flows"`
	// StorageShare is the part of the device's time that a storage service on this machine gets
	// before all flows while it uses the device, 0 to 0.99; default 0: no such service.
	StorageShare float64 `yaml:"storage_share"`
}

// Depth configures the depth D. Fixed applies to the algorithm sfqd, the other values to sfqd2.
// Read and Write define the reference latency of a request, Lref = fixed + per_mib * MiB.
type Depth struct {
	Fixed int     `yaml:"fixed"`
	Min   float64 `yaml:"min"`
	Max   float64 `yaml:"max"`
	Start float64 `yaml:"start"`
	Gain  float64 `yaml:"gain"`
	Read  *Line   `yaml:"read"`
	Write *Line   `yaml:"write"`
}

// Line is a latency as a function of a request's bytes.
type Line struct {
	Fixed  settings.Duration `yaml:"fixed"`
	PerMiB settings.Duration `yaml:"per_mib"`
}

// Reference latencies if neither the settings file nor a profile of the device has any: the time of
// two requests on a 7,200 rpm disk at 150 MB/s, and of four on a SATA flash disk at 400 MB/s.
var (
	rotational = depth.Line{Fixed: 20 * time.Millisecond, PerMiB: 14 * time.Millisecond}
	flash      = depth.Line{Fixed: time.Millisecond, PerMiB: 10 * time.Millisecond}
)

// seek is the time of two short seeks of a 7,200 rpm disk, because rotational is the time of two
// requests. The seeks are short because the disk serves its queue in the order of positions.
const seek = 2 * 4 * time.Millisecond

// loadProfiles reads the profile of each section that has one.
func (n *Node) loadProfiles() {
	n.profiles = map[string]*profile.Profile{}
	if err := n.loadProfile(&n.Device); err != nil {
		n.doc.Add("device: profile: ", err, "device", "profile")
	}
	for _, name := range slices.Sorted(maps.Keys(n.Devices)) {
		d := n.Devices[name]
		if err := n.loadProfile(&d); err != nil {
			n.doc.Add("device "+name+": profile: ", err, "devices", name, "profile")
		}
		n.Devices[name] = d
	}
}

func (n *Node) loadProfile(d *Device) (err error) {
	if d.Profile == "" {
		return nil
	}
	if !filepath.IsAbs(d.Profile) {
		d.Profile = filepath.Join(n.base, d.Profile)
	}
	if n.profiles[d.Profile] == nil {
		n.profiles[d.Profile], err = profile.Load(d.Profile)
	}
	return plain.File(err)
}

func (n *Node) device(name string) Device {
	if d, ok := n.Devices[name]; ok {
		return d
	}
	return n.Device
}

// SetsRoom reports whether the file sets the limits of a device: on dirty bytes, and on bytes of
// closed files that wait undrained (lazy).
func (n *Node) SetsRoom(name string) (dirty, lazy bool) {
	d := n.device(name)
	return d.Dirty != 0, d.Lazy != 0
}

// SetsStaged reports whether the file limits the bytes that may be staged ahead of readers on a
// device.
func (n *Node) SetsStaged(name string) bool { return n.device(name).Staged != 0 }

// Profile returns the profile of the device with that kernel name, and the profile's file; p is nil
// if the device has no profile.
func (n *Node) Profile(name string) (file string, p *profile.Profile) {
	file = n.device(name).Profile
	return file, n.profiles[file]
}

// ConfigFor returns the settings of that device. If the profile belongs to another device, it is
// not used, and misfit contains the reason.
func (n *Node) ConfigFor(id profile.Device) (c device.Config, misfit, err error) {
	file, p := n.Profile(id.Name)
	if p != nil {
		if why := p.Fits(id); why != nil {
			misfit = fmt.Errorf("profile %s is not of this device: %w; measure it with `penstock profile`", file, why)
			p = nil
		}
	}
	c, err = n.config(id.Name, id.Rotational, p)
	return c, misfit, ofDevice(id.Name, err)
}

// DeviceConfig returns the settings of a device by its kernel name, including its profile if it has
// one. It does not check that the profile was measured on this device.
func (n *Node) DeviceConfig(name string, rotates bool) (device.Config, error) {
	_, p := n.Profile(name)
	c, err := n.config(name, rotates, p)
	return c, ofDevice(name, err)
}

// ofDevice adds the name of the device to an error. If name is empty, the error is about the
// settings for all devices.
func ofDevice(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case name == "":
		return fmt.Errorf("settings of all devices: %w", err)
	}
	return fmt.Errorf("settings of device %s: %w", name, err)
}

func (n *Node) config(name string, rotates bool, p *profile.Profile) (device.Config, error) {
	d := n.device(name)
	read, write, away := flash, flash, time.Duration(0)
	if rotates {
		read, write, away = rotational, rotational, seek
	}
	c := device.Config{
		Algorithm:  d.Algorithm,
		Quantum:    int64(d.Quantum),
		Ahead:      d.Ahead,
		Backlog:    int64(d.Backlog),
		Dirty:      int64(d.Dirty),
		Run:        int64(d.Run),
		FixedDepth: d.Depth.Fixed,
		Seek:       away,
		Period:     time.Duration(d.Period),
		MaxWait:    time.Duration(d.MaxWait),
		FlushAge:   time.Duration(d.FlushAge),
		Lazy:       int64(d.Lazy),
		LazyAge:    time.Duration(d.LazyAge),
		LazyFiles:  d.LazyFiles,
		Staged:     int64(d.Staged),
		Stuck:      time.Duration(d.Stuck),
		MaxFlows:   d.MaxFlows,
		Storage:    d.StorageShare,
	}
	if p != nil {
		c.Cost = p.Model()
		read, write = p.References()
		if c.Quantum == 0 {
			c.Quantum = int64(p.Quantum)
		}
	}
	c.Depth = depth.Config{
		Min: d.Depth.Min, Max: d.Depth.Max, Start: d.Depth.Start, Gain: d.Depth.Gain,
		Read: d.Depth.Read.or(read), Write: d.Depth.Write.or(write),
	}
	c.Peer = slices.Contains(n.peers, d.Algorithm)
	err := n.checkAlgorithm(d.Algorithm)
	if err != nil {
		c.Algorithm = "" // so that the mistake is reported once
	}
	return c, errors.Join(err, c.Validate())
}

// checkAlgorithm checks the name of a scheduler; empty means the default.
func (n *Node) checkAlgorithm(name string) error {
	known := append(slices.Clone(arbiter.Algorithms), n.peers...)
	slices.Sort(known[len(arbiter.Algorithms):])
	switch {
	case name == "" || slices.Contains(known, name):
		return nil
	case slices.Contains(laboratory, name):
		return fmt.Errorf("algorithm %q is only for comparison: "+
			"run a daemon with it as `penstock-lab node`, or use one of %s", name, strings.Join(known, ", "))
	}
	return fmt.Errorf("algorithm %q: use one of %s", name, strings.Join(known, ", "))
}

// laboratory lists the algorithms of `penstock-lab node`.
var laboratory = []string{"drr", "fifo"}

// or returns l or, if the settings file has no such line, other.
func (l *Line) or(other depth.Line) depth.Line {
	if l == nil {
		return other
	}
	return depth.Line{Fixed: time.Duration(l.Fixed), PerMiB: time.Duration(l.PerMiB)}
}
