package blockfile

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// sysTree is a sysfs for a test. The kernel's own is a folder of the same form.
type sysTree struct {
	t    *testing.T
	root string
}

func newSysTree(t *testing.T) sysTree { return sysTree{t, t.TempDir()} }

func (s sysTree) dir(name string) string { return filepath.Join(s.root, "devices", name) }

func (s sysTree) file(name, text string) {
	s.t.Helper()
	name = s.dir(name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// disk adds a disk, or a partition if the name has the form disk/partition.
func (s sysTree) disk(name string, queue ...string) {
	s.t.Helper()
	s.file(name+"/size", "2048\n")
	if strings.Contains(name, "/") {
		s.file(name+"/partition", "1\n")
	}
	for _, q := range queue {
		file, value, _ := strings.Cut(q, "=")
		s.file(name+"/queue/"+file, value+"\n")
	}
}

// mapped adds a device that is made of others.
func (s sysTree) mapped(name string, of ...string) {
	s.t.Helper()
	s.disk(name, "read_ahead_kb=128")
	for _, below := range of {
		s.link(name+"/slaves/"+filepath.Base(below), s.dir(below))
	}
}

func (s sysTree) link(name, to string) {
	s.t.Helper()
	name = s.dir(name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Symlink(to, name); err != nil {
		s.t.Fatal(err)
	}
}

// device returns the device of a directory whose file system is on the named device.
func (s sysTree) device(name string) (Device, error) {
	s.t.Helper()
	dir := s.t.TempDir()
	major, minor := deviceNumbers(s.t, dir)
	number := filepath.Join(s.root, "dev/block", major+":"+minor)
	if err := os.MkdirAll(filepath.Dir(number), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Symlink(s.dir(name), number); err != nil {
		s.t.Fatal(err)
	}
	defer os.Remove(number)
	d, err := OpenDir(dir, s.root)
	if err != nil {
		return Device{}, err
	}
	defer d.Close()
	return d.Device, nil
}

func (s sysTree) want(name string, want Device) {
	s.t.Helper()
	if got, err := s.device(name); err != nil || !reflect.DeepEqual(got, want) {
		s.t.Errorf("a file system on %s: device %+v, %v; want %+v", name, got, err, want)
	}
}

func TestDeviceOfPartition(t *testing.T) {
	s := newSysTree(t)
	s.disk("sdz", "rotational=0", "max_sectors_kb=1280", "read_ahead_kb=128")
	s.disk("sdz/sdz3")
	want := Device{Name: "sdz", Disks: []string{"sdz"}, Local: true, Readahead: 1280 << 10, Folios: true}
	s.want("sdz/sdz3", want)
	s.want("sdz", want)
}

func TestDeviceWithoutBlockDevice(t *testing.T) {
	dir := t.TempDir()
	major, minor := deviceNumbers(t, dir)
	d, err := OpenDir(dir, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if want := "dev-" + major + ":" + minor; d.Device.Name != want || len(d.Device.Disks) > 0 || d.Device.Overlaps(d.Device) {
		t.Errorf("without a block device: %+v, want %q without disks", d.Device, want)
	}
}

// TestVolumesOfOneDisk: logical volumes and encrypted volumes of one disk have its scheduler. The
// readahead is that of the volume, since it is the file system's.
func TestVolumesOfOneDisk(t *testing.T) {
	s := newSysTree(t)
	s.disk("sda", "rotational=1", "read_ahead_kb=128")
	s.disk("sda/sda2")
	s.disk("sda/sda3")
	s.mapped("dm-0", "sda/sda2") // two logical volumes of one partition
	s.mapped("dm-1", "sda/sda2")
	s.file("dm-1/queue/read_ahead_kb", "4096\n")
	s.mapped("dm-2", "dm-1")                 // one of them is encrypted
	s.mapped("dm-3", "sda/sda2", "sda/sda3") // a volume on two partitions
	one := Device{Name: "sda", Disks: []string{"sda"}, Rotational: true, Local: true, Readahead: 128 << 10, Folios: true}
	for _, name := range []string{"sda/sda3", "dm-0", "dm-2", "dm-3"} {
		s.want(name, one)
	}
	one.Readahead, one.Folios = 4<<20, false
	s.want("dm-1", one)
}

// TestVolumesOfSeveralDisks: the device that combines the disks is the carrier, and devices that
// share a disk say so.
func TestVolumesOfSeveralDisks(t *testing.T) {
	s := newSysTree(t)
	for _, disk := range []string{"sda", "sdb", "sdc"} {
		s.disk(disk, "rotational=1")
		s.disk(disk + "/" + disk + "1")
		s.disk(disk + "/" + disk + "2")
	}
	s.mapped("md0", "sda/sda1", "sdb/sdb1")
	s.mapped("md1", "sda/sda2", "sdb/sdb2")
	s.file("md0/queue/rotational", "1\n")
	s.mapped("dm-0", "md0") // two volumes of one RAID
	s.mapped("dm-1", "md0")
	s.mapped("dm-2", "md1", "sdc/sdc1") // a volume on two levels
	device := func(name string) Device {
		t.Helper()
		d, err := s.device(name)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	raid := device("dm-0")
	if raid.Name != "md0" || !reflect.DeepEqual(raid.Disks, []string{"sda", "sdb"}) || !reflect.DeepEqual(raid, device("dm-1")) {
		t.Errorf("a volume of a RAID: %+v and %+v, want md0 of sda and sdb", raid, device("dm-1"))
	}
	wide := device("dm-2")
	if wide.Name != "dm-2" || !reflect.DeepEqual(wide.Disks, []string{"sda", "sdb", "sdc"}) {
		t.Errorf("a volume of a RAID and a partition: %+v, want dm-2 of sda, sdb and sdc", wide)
	}
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"dm-0", "md1", true}, {"dm-2", "sdc", true}, {"dm-0", "sdb/sdb2", true}, {"dm-0", "sdc", false}, {"sda", "sdb", false},
	} {
		if got := device(c.a).Overlaps(device(c.b)); got != c.want {
			t.Errorf("%s and %s share a disk: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

// TestAThinPoolOfOneDisk: the data and the metadata of a thin pool are mappings of their own, and
// still everything is on one disk. A partition beside the pool has the same device.
func TestAThinPoolOfOneDisk(t *testing.T) {
	s := newSysTree(t)
	s.disk("sda", "rotational=1", "read_ahead_kb=128")
	s.disk("sda/sda2")
	s.disk("sda/sda3")
	s.mapped("dm-0", "sda/sda3")
	s.mapped("dm-1", "sda/sda3")
	s.mapped("dm-2", "dm-0", "dm-1")
	s.mapped("dm-3", "dm-2")
	one := Device{Name: "sda", Disks: []string{"sda"}, Rotational: true, Local: true, Readahead: 128 << 10, Folios: true}
	s.want("dm-3", one)
	s.want("sda/sda2", one)
}

// TestStacksHaveABound: a sysfs that leads in circles or is too wide ends in an error; a high stack
// is resolved.
func TestStacksHaveABound(t *testing.T) {
	s := newSysTree(t)
	s.mapped("dm-0", "dm-1")
	s.mapped("dm-1", "dm-0")
	if d, err := s.device("dm-0"); err == nil {
		t.Errorf("devices in a circle: %+v, want an error", d)
	}

	s = newSysTree(t)
	s.disk("sda")
	s.mapped("dm-0", "sda")
	const high = 30
	for i := 1; i < high; i++ {
		s.mapped(fmt.Sprintf("dm-%d", i), fmt.Sprintf("dm-%d", i-1))
	}
	if d, err := s.device(fmt.Sprintf("dm-%d", high-1)); err != nil || d.Name != "sda" {
		t.Errorf("%d mappings above each other: %+v, %v", high, d, err)
	}

	s = newSysTree(t)
	var disks []string
	for i := range maxParts {
		disks = append(disks, fmt.Sprintf("sd%d", i))
		s.disk(disks[i])
	}
	s.mapped("md0", disks[1:]...)
	s.mapped("md1", disks...)
	if d, err := s.device("md0"); err != nil || len(d.Disks) != maxParts-1 {
		t.Errorf("%d disks: %d found, %v", maxParts-1, len(d.Disks), err)
	}
	if _, err := s.device("md1"); err == nil {
		t.Errorf("%d disks and their RAID are accepted, want an error", maxParts)
	}
}

func TestALinkToNowhereIsAnError(t *testing.T) {
	s := newSysTree(t)
	s.mapped("dm-0", "gone")
	if d, err := s.device("dm-0"); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a device below is missing: %+v, %v", d, err)
	}
}
