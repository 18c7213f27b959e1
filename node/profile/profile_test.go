package profile

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"penstock/core/cost"
	"penstock/core/depth"
)

func line(fixed, perMiB time.Duration) Line { return Line{Duration(fixed), Duration(perMiB)} }

func sample() *Profile {
	read := Coefficients{Random: line(8*time.Millisecond, 87*time.Millisecond), Sequential: line(150*time.Microsecond, 87*time.Millisecond), Alone: line(9*time.Millisecond, 88*time.Millisecond)}
	write := Coefficients{Random: line(9*time.Millisecond, 90*time.Millisecond), Sequential: line(0, 90*time.Millisecond)}
	reference := Latency{line(20*time.Millisecond, 180*time.Millisecond), 3}
	return &Profile{
		Version:   Version,
		Device:    Device{Name: "sdb", Model: "Disk 3000", Bytes: 4_000_787_030_016, Rotational: true},
		Measured:  time.Date(2026, 11, 22, 0, 30, 0, 0, time.UTC),
		Cost:      Cost{Read: read, Write: &write},
		Reference: Reference{Read: Latency{line(18*time.Millisecond, 175*time.Millisecond), 2}, Write: &reference},
		Quantum:   2 << 20, Residual: 0.02,
	}
}

func TestRoundTrip(t *testing.T) {
	reads := sample()
	reads.Cost.Write, reads.Reference.Write = nil, nil
	for _, p := range []*Profile{sample(), reads} {
		text, err := p.Text()
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(t.TempDir(), "p.yaml")
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Load(name)
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%v: got %+v, wrote %+v\n%s", err, got, p, text)
		}
	}
	m := sample().Model()
	if want := (cost.Line{Fixed: 9 * time.Millisecond, PerMiB: 90 * time.Millisecond}); m.Write.Random != want {
		t.Errorf("model: %+v", m)
	}
	if m := reads.Model(); m.Write != m.Read {
		t.Errorf("model of a read-only measurement: %+v", m)
	}
	if r, w := reads.References(); r != w || r != (depth.Line{Fixed: 18 * time.Millisecond, PerMiB: 175 * time.Millisecond}) {
		t.Errorf("references of a read-only measurement: %v, %v", r, w)
	}
}

func TestRefused(t *testing.T) {
	good, err := sample().Text()
	if err != nil {
		t.Fatal(err)
	}
	for want, replace := range map[string][2]string{
		"measure again with":          {"version: 1", "version: 2"},
		"field colour not found":      {"version: 1", "version: 1\ncolour: red"},
		"line":                        {"quantum: 2MiB", "quantum: 2MB"},
		"whole pages":                 {"quantum: 2MiB", "quantum: 4097"},
		"between 64KiB":               {"quantum: 2MiB", "quantum: 32KiB"},
		"residual NaN":                {"residual: 0.02", "residual: .nan"},
		"residual 2":                  {"residual: 0.02", "residual: 2"},
		"use a duration":              {"fixed: 8ms", "fixed: -8ms"},
		"cost of random reads":        {"fixed: 8ms", "fixed: 8s"},
		"cannot be cheaper":           {"fixed: 8ms", "fixed: 100us"},
		"faster than any disk":        {"per_mib: 90ms", "per_mib: 1us"},
		"reference latency of reads":  {"per_mib: 175ms", "per_mib: 2m"},
		"concurrency 0":               {"concurrency: 3", "concurrency: 0"},
		"device: give name and bytes": {"bytes: 4000787030016", "bytes: 0"},
		"more than one document":      {"version: 1", "version: 1\n---\nversion: 1"},
	} {
		bad := strings.Replace(string(good), replace[0], replace[1], 1)
		if bad == string(good) {
			t.Fatalf("%q is not in:\n%s", replace[0], good)
		}
		if _, err := Parse([]byte(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want something with %q", replace[1], err, want)
		}
	}
	if _, err := Parse(nil); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := Parse(make([]byte, maxFile+1)); err == nil || !strings.Contains(err.Error(), "no profile") {
		t.Errorf("a large file: %v", err)
	}
	bad := sample()
	bad.Version = 0
	if _, err := bad.Text(); err == nil {
		t.Error("a bad profile is written")
	}
}

func TestFits(t *testing.T) {
	p := sample()
	d := p.Device
	d.Name = "sdc" // kernel names change
	d.Bytes += d.Bytes / 101
	if err := p.Fits(d); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Device){
		"Disk 4000": func(d *Device) { d.Model = "Disk 4000" },
		"bytes":     func(d *Device) { d.Bytes -= d.Bytes / 50 },
		"hard disk": func(d *Device) { d.Rotational = false },
	} {
		d := p.Device
		change(&d)
		if err := p.Fits(d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want something with %q", d, err, want)
		}
	}
}

func TestIdentify(t *testing.T) {
	sysfs := t.TempDir()
	for name, text := range map[string]string{"size": "2000\n", "device/model": "Disk 3000   \n", "queue/rotational": "0\n"} {
		file := filepath.Join(sysfs, "block/sdb", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Identify(sysfs, "sdb")
	if want := (Device{Name: "sdb", Model: "Disk 3000", Bytes: 1_024_000}); err != nil || d != want {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := Identify(sysfs, "dev-0:24"); err == nil {
		t.Error("a file system without a device is identified")
	}
}

// For any text, Parse returns an error or a valid profile, and this profile is the same after it
// is written and read again.
func FuzzParse(f *testing.F) {
	for _, change := range []func(*Profile){
		func(*Profile) {},
		func(p *Profile) { p.Cost.Write, p.Reference.Write = nil, nil },
		func(p *Profile) { p.Quantum, p.Residual = QuantumMin, 1 },
	} {
		p := sample()
		change(p)
		text, err := p.Text()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("version: 1\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte(fmt.Sprintf("quantum: %d\nresidual: .inf\n", int64(1)<<62)))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		again, err := p.Text()
		if err != nil {
			t.Fatalf("%q is read but cannot be written: %v", text, err)
		}
		q, err := Parse(again)
		if err != nil {
			t.Fatalf("%q was written and is refused: %v", again, err)
		}
		if third, err := q.Text(); err != nil || string(third) != string(again) {
			t.Fatalf("%q became %q, %v", again, third, err)
		}
	})
}
