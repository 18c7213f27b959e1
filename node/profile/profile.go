// Package profile holds a device's profile: the costs of its requests, their reference latency,
// and the necessary size of a quantum. `penstock profile` measures it (package measure) and
// writes it to a file; the node daemon reads the file that its settings name.
//
// A profile is valid for one device, and a wrong profile is worse than none: shares would be
// computed from another disk's seeks. So the file identifies the measured device by model and size,
// which stay the same when kernel names change from boot to boot, and Fits compares them. The file
// is YAML with a version number, so that people can read and correct it. It is read strictly: an
// unknown field, a missing unit or a value that no disk has is an error with its reason. IBIS
// (section 4) profiles each storage setup once, manually, and measures only the reference latency.
package profile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"penstock/core/cost"
	"penstock/core/depth"
)

// Version is the version of the file format that this program writes, and the
// only one it reads.
const Version = 1

// maxFile is the maximum size of a profile file, in bytes.
const maxFile = 64 << 10

// Bounds of the values in a profile, except for the costs: core/cost has bounds for these.
const (
	QuantumMin     = 64 << 10
	QuantumMax     = 64 << 20
	ReferenceMax   = time.Minute // of either part of a reference latency
	ConcurrencyMax = 1024
	sizeTolerance  = 0.01 // relative difference in size between devices of the same model
	quantumDivisor = 4096
)

// Profile is the content of a profile file.
type Profile struct {
	Version  int       `yaml:"version" json:"version"`
	Device   Device    `yaml:"device" json:"device"`
	Measured time.Time `yaml:"measured" json:"measured"`
	// Cost is the device time of requests at saturation. A read-only measurement leaves out
	// Write; then writes cost the same as reads.
	Cost Cost `yaml:"cost" json:"cost"`
	// Reference is the latency of requests just before the device saturates.
	Reference Reference `yaml:"reference" json:"reference"`
	// Quantum is the smallest size that keeps most of the sequential rate, in bytes.
	Quantum Bytes `yaml:"quantum" json:"quantum_bytes"`
	// Residual is the relative deviation of the measurements from the costs: the root of the mean
	// square.
	Residual float64 `yaml:"residual" json:"residual"`
}

// Device identifies the measured device.
type Device struct {
	Name       string `yaml:"name" json:"name"`   // kernel name at that time
	Model      string `yaml:"model" json:"model"` // as reported by the device; may be empty
	Bytes      int64  `yaml:"bytes" json:"bytes"`
	Rotational bool   `yaml:"rotational" json:"rotational"`
}

// Cost is the Model of core/cost in the form of the file.
type Cost struct {
	Read  Coefficients  `yaml:"read" json:"read"`
	Write *Coefficients `yaml:"write,omitempty" json:"write,omitempty"`
}

// Coefficients are one direction's lines; Alone is the latency of a random request while the device
// has no other request.
type Coefficients struct {
	Random     Line `yaml:"random" json:"random"`
	Sequential Line `yaml:"sequential" json:"sequential"`
	Alone      Line `yaml:"alone" json:"alone"`
}

// Line is a time as a linear function of a request's size.
type Line struct {
	Fixed  Duration `yaml:"fixed" json:"fixed_ns"`
	PerMiB Duration `yaml:"per_mib" json:"per_mib_ns"`
}

// Reference holds the reference latencies. If Write is nil, Read applies to writes, too.
type Reference struct {
	Read  Latency  `yaml:"read" json:"read"`
	Write *Latency `yaml:"write,omitempty" json:"write,omitempty"`
}

// Latency is the latency of requests while Concurrency of them are in flight.
type Latency struct {
	Line        `yaml:",inline"`
	Concurrency int `yaml:"concurrency" json:"concurrency"`
}

// Model returns the costs in the form of core/cost.
func (p *Profile) Model() cost.Model {
	line := func(l Line) cost.Line {
		return cost.Line{Fixed: time.Duration(l.Fixed), PerMiB: time.Duration(l.PerMiB)}
	}
	lines := func(c *Coefficients) cost.Coefficients {
		return cost.Coefficients{Random: line(c.Random), Sequential: line(c.Sequential), Alone: line(c.Alone)}
	}
	m := cost.Model{Read: lines(&p.Cost.Read)}
	m.Write = m.Read
	if p.Cost.Write != nil {
		m.Write = lines(p.Cost.Write)
	}
	return m
}

// References returns the reference latencies in the form of core/depth.
func (p *Profile) References() (read, write depth.Line) {
	line := func(l Latency) depth.Line {
		return depth.Line{Fixed: time.Duration(l.Fixed), PerMiB: time.Duration(l.PerMiB)}
	}
	read = line(p.Reference.Read)
	if p.Reference.Write == nil {
		return read, read
	}
	return read, line(*p.Reference.Write)
}

// Fits returns nil if the profile was measured on that device, or on one of the same model and
// size.
func (p *Profile) Fits(d Device) error {
	var errs []error
	if p.Device.Model != d.Model {
		errs = append(errs, fmt.Errorf("it was measured on a %q (%s), this is a %q (%s)", p.Device.Model, p.Device.Name, d.Model, d.Name))
	}
	if off := float64(p.Device.Bytes) - float64(d.Bytes); off > sizeTolerance*float64(d.Bytes) || -off > sizeTolerance*float64(d.Bytes) {
		errs = append(errs, fmt.Errorf("it was measured on a device of %d bytes (%s), this one has %d (%s)", p.Device.Bytes, p.Device.Name, d.Bytes, d.Name))
	}
	if p.Device.Rotational != d.Rotational {
		errs = append(errs, errors.New("one of them is a hard disk, the other is not"))
	}
	return errors.Join(errs...)
}

// Validate returns an error for values that no disk has.
func (p *Profile) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(p.Version == Version, "version %d: this program reads version %d; measure again with `penstock profile`", p.Version, Version)
	check(p.Device.Name != "" && p.Device.Bytes > 0, "device: give name and bytes, or measure again")
	errs = append(errs, p.Model().Validate())
	reference := func(name string, l *Latency) {
		fixed, perMiB := time.Duration(l.Fixed), time.Duration(l.PerMiB)
		check(fixed >= 0 && perMiB >= 0 && fixed <= ReferenceMax && perMiB <= ReferenceMax && fixed+perMiB > 0,
			"reference latency of %s, %v + %v/MiB: both parts must be 0 to %v, and one above 0", name, fixed, perMiB, ReferenceMax)
		check(l.Concurrency >= 1 && l.Concurrency <= ConcurrencyMax, "concurrency %d: use 1 to %d", l.Concurrency, ConcurrencyMax)
	}
	reference("reads", &p.Reference.Read)
	if p.Reference.Write != nil {
		reference("writes", p.Reference.Write)
	}
	check(p.Quantum >= QuantumMin && p.Quantum <= QuantumMax && p.Quantum%quantumDivisor == 0,
		"quantum %d: use whole pages between 64KiB and 64MiB", p.Quantum)
	check(p.Residual >= 0 && p.Residual <= 1, "residual %v: it is a part, 0 to 1", p.Residual)
	return errors.Join(errs...)
}

// Parse reads a profile from the text of its file.
func Parse(text []byte) (*Profile, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("over %d bytes: this is no profile", maxFile)
	}
	p := &Profile{}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(p); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return nil, err
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document: keep one")
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// Load reads a profile file.
func Load(file string) (*Profile, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", file, err)
	}
	p, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", file, err)
	}
	return p, nil
}

// Text returns the text of the profile's file.
func (p *Profile) Text() ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("# A device's profile, written by `penstock profile`. The settings of\n# `penstock node` name it: device: {profile: THIS-FILE}.\n")
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(p); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Identify returns the device that a kernel name denotes now. It reads sysfs, which is "/sys"
// except in tests. Virtual devices have no model.
func Identify(sysfs, name string) (Device, error) {
	dir := filepath.Join(sysfs, "block", name)
	text := func(file string) string {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	sectors, err := strconv.ParseInt(text("size"), 10, 64)
	if err != nil || sectors <= 0 || sectors > 1<<53 {
		return Device{}, fmt.Errorf("%s: the kernel does not know a block device of that name", name)
	}
	return Device{Name: name, Model: text("device/model"), Bytes: sectors * 512, Rotational: text("queue/rotational") != "0"}, nil
}
