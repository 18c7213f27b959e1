package isolation

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

func calibrated(t *testing.T, demand float64) (Setup, Calibration) {
	t.Helper()
	before := testSetup()
	s, c, err := Calibrate(before, Run{DemandMBps: demand, RuntimeS: 30})
	if err != nil {
		t.Fatal(err)
	}
	if again, c2, _ := Calibrate(before, Run{DemandMBps: demand, RuntimeS: 30}); !reflect.DeepEqual(again, s) || c2 != c {
		t.Errorf("%v MB/s: two calibrations by one run differ", demand)
	}
	return s, c
}

// The defaults are for one machine. On machines with a third to five times its speed, the job's
// demand is 50 to 75 % of its disks' rate, and the other settings are in proportion to the rate.
func TestCalibrateFollowsTheMachine(t *testing.T) {
	own := testSetup()
	for demand := 3.72; demand < 59.5; demand *= 1.1 {
		s, c := calibrated(t, demand)
		rate := float64(s.Disk.BytesPerSecond) / megabyte
		if part := demand / rate / float64(s.Disk.DataNodes); part < demandMin || part > demandMax || math.Abs(part-c.Part) > 1e-9 {
			t.Errorf("%.1f MB/s: disks of %.1f MB/s are used by %.2f, said %.2f", demand, rate, part, c.Part)
		}
		if strings.Contains(c.text("WordCount"), "bounded") {
			t.Errorf("%.1f MB/s: %s", demand, c.text("WordCount"))
		}
		faster := rate / float64(own.Disk.BytesPerSecond) * megabyte
		if got := own.Penstock.ReferenceRead.PerMiBMillis / s.Penstock.ReferenceRead.PerMiBMillis; math.Abs(got-faster) > 1e-6 {
			t.Errorf("%.1f MB/s: the reference latency is %.2f times shorter, the disks %.2f times faster", demand, got, faster)
		}
		if got := float64(s.Kernel.DirtyBytes) / float64(own.Kernel.DirtyBytes); math.Abs(got-faster) > 0.05 {
			t.Errorf("%.1f MB/s: the dirty limit is %.2f times as large, the disks %.2f times as fast", demand, got, faster)
		}
		if seconds := float64(s.Protected.InputBytes) / megabyte / demand; seconds > calibratedSeconds && s.Protected.InputBytes > own.Protected.InputBytes/3 {
			t.Errorf("%.1f MB/s: %d bytes of input take %.0f s", demand, s.Protected.InputBytes, seconds)
		}
	}
}

// A text never says that a demand is outside of a range whose end it shows as the demand.
func TestDemandsAreComparedAsShown(t *testing.T) {
	for part, want := range map[float64]bool{0.4949: true, 0.495: false, 0.5: false, 0.75: false, 0.7504: false, 0.7549: false, 0.756: true} {
		part, text := part, Result{}
		text.ProtectedDemand = &part
		if note := text.Notes()[0]; strings.Contains(note, "not 50 to 75 %") != want {
			t.Errorf("%v: %s", part, note)
		}
	}
}

func TestCalibrateIsBounded(t *testing.T) {
	own := testSetup()
	for demand, want := range map[float64]float64{0.5: 3, 4: 3, 70: 48, 5000: 48} {
		s, c := calibrated(t, demand)
		if c.RateMBps != want || s.Disk.BytesPerSecond != int64(want*megabyte) {
			t.Errorf("%v MB/s: disks of %v MB/s, %d bytes/s, want %v", demand, c.RateMBps, s.Disk.BytesPerSecond, want)
		}
		if _, outside := demandPercent(c.Part); outside != strings.Contains(c.text("WordCount"), "bounded: 3 to 48 MB/s") {
			t.Errorf("%v MB/s: %s", demand, c.text("WordCount"))
		}
		if s.Protected.InputBytes > own.Protected.InputBytes || s.Protected.InputBytes < own.Protected.InputBytes/3-int64(own.Protected.Files)*mib {
			t.Errorf("%v MB/s: %d bytes of input", demand, s.Protected.InputBytes)
		}
		// With all the disks for itself, the aggressor is busy for as long as on disks of the usual rate.
		usual := float64(calibratedBytes) / float64(own.Disk.BytesPerSecond)
		if lasts := float64(s.Aggressor.Bytes) / float64(s.Disk.BytesPerSecond); lasts < usual || s.Aggressor.Bytes > 2*s.Disk.SizeBytes {
			t.Errorf("%v MB/s: the aggressor writes %d bytes", demand, s.Aggressor.Bytes)
		}
	}
}

func TestCalibrateEveryPair(t *testing.T) {
	for _, protected := range Protecteds {
		for _, against := range Aggressors {
			for _, kind := range []string{HDD, SSD} {
				for _, demand := range []float64{2, 20, 200} {
					s, err := DefaultSetup(protected, against, kind)
					if err != nil {
						t.Fatal(err)
					}
					if _, _, err := Calibrate(s, Run{DemandMBps: demand}); err != nil {
						t.Errorf("%s against %s on %s, %v MB/s: %v", protected, against, kind, demand, err)
					}
				}
			}
		}
	}
}

func TestCalibrateNeedsCounters(t *testing.T) {
	for _, demand := range []float64{0, math.NaN()} {
		if _, _, err := Calibrate(testSetup(), Run{DemandMBps: demand}); err == nil || !strings.Contains(err.Error(), "--disk-rate") {
			t.Errorf("%v MB/s: %v", demand, err)
		}
	}
}
