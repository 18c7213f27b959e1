package node

import (
	"testing"
	"time"

	"penstock/node/blockfile"
	"penstock/node/device"
	"penstock/node/profile"
)

// TestDevicesThatShareDisks: a disk always has its own scheduler, whatever was registered before it.
// A device of several disks joins the scheduler of one of them.
func TestDevicesThatShareDisks(t *testing.T) {
	one := func(name string) blockfile.Device { return blockfile.Device{Name: name, Disks: []string{name}} }
	raid := blockfile.Device{Name: "md0", Disks: []string{"sda", "sdb"}}
	wide := blockfile.Device{Name: "md1", Disks: []string{"sdb", "sdc"}}
	for name, c := range map[string]struct {
		order []blockfile.Device
		want  []string // name of the governing device, for each
	}{
		"disks first":           {[]blockfile.Device{one("sda"), one("sdb"), raid, wide}, []string{"sda", "sdb", "sda", "sdb"}},
		"the RAID first":        {[]blockfile.Device{raid, one("sda"), one("sdb"), raid}, []string{"md0", "sda", "sdb", "md0"}},
		"two RAIDs":             {[]blockfile.Device{raid, wide, one("sdc"), wide}, []string{"md0", "md0", "sdc", "md0"}},
		"nothing in common":     {[]blockfile.Device{one("sda"), one("sdc")}, []string{"sda", "sdc"}},
		"without block devices": {[]blockfile.Device{{Name: "dev-0:40"}, {Name: "dev-0:41"}}, []string{"dev-0:40", "dev-0:41"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := start(t, "observe").daemon
			for i, dev := range c.order {
				none := func() (device.Counters, bool) { return device.Counters{}, false }
				g, err := d.govern(dev, "", none, func() (device.Config, error) { return d.deviceConfig(dev) })
				if err != nil {
					t.Fatal(err)
				}
				if g.dev.Name != c.want[i] {
					t.Errorf("%s is governed as %s, want %s", dev.Name, g.dev.Name, c.want[i])
				}
			}
			for _, dev := range d.status().Devices {
				if (len(dev.Joined) > 0) != (name == "disks first" || name == "two RAIDs" && dev.Name == "md0") {
					t.Errorf("%s has joined %v", dev.Name, dev.Joined)
				}
			}
		})
	}
}

// A device without directories ends when its disk is gone. A disk that takes its place gets a loop of its own.
func TestDevicesThatAreGone(t *testing.T) {
	d := start(t, "observe").daemon
	govern := func(name, dir string) *governed {
		t.Helper()
		g, err := d.govern(blockfile.Device{Name: name}, dir, nil, func() (device.Config, error) { return d.deviceConfig(blockfile.Device{Name: name}) })
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	runs := func(g *governed) bool {
		_, ok := g.loop.Snapshot()
		return ok
	}
	gone := profile.Device{Name: "gone", Bytes: 1 << 30}
	used, kept, memory := govern("used", "/a"), govern("kept", ""), govern("memory", "/c")
	used.disk, kept.disk = gone, gone
	memory.addDir("/c", -1)
	if again := govern("used", "/b"); again != used {
		t.Error("a device with a directory was replaced")
	}
	used.addDir("/a", -1)
	used.addDir("/b", -1)
	d.mu.Lock()
	d.joins["joined"] = used
	d.mu.Unlock()
	tick, _ := d.Heartbeat()
	if again := govern("used", "/a"); again == used || !runs(again) {
		t.Error("a device whose disk is gone was kept")
	}
	for deadline := time.Now().Add(30 * time.Second); runs(used); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("its loop does not end")
		}
	}
	if now, _ := d.Heartbeat(); now < tick {
		t.Errorf("the daemon's tick fell from %d to %d", tick, now)
	}
	if govern("kept", "") != kept || govern("memory", "/c") != memory || !runs(kept) || !runs(memory) {
		t.Error("a device that is kept, or is no block device, was replaced")
	}
	if d.joins["joined"] != nil {
		t.Error("a device is still joined to one that has ended")
	}
}
