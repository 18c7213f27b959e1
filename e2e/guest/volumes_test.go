package guest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"penstock/node/blockfile"
)

// The device mapper's ioctl, from linux/dm-ioctl.h.
type mapperIoctl struct {
	Version     [3]uint32
	DataSize    uint32
	DataStart   uint32
	TargetCount uint32
	OpenCount   int32
	Flags       uint32
	EventNumber uint32
	_           uint32
	Device      uint64
	Name        [128]byte
	UUID        [129]byte
	_           [7]byte
}

type mapperTarget struct {
	Start, Length uint64 // in sectors
	Status        int32
	Next          uint32
	Kind          [16]byte
}

const (
	mapperCreate = 3
	mapperRemove = 4
	mapperResume = 6 // and suspend
	mapperLoad   = 9
	sector       = 512
)

func mapper(command int, name string, target []byte) error {
	control, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer control.Close()
	head := mapperIoctl{Version: [3]uint32{4, 0, 0}, DataStart: uint32(unsafe.Sizeof(mapperIoctl{}))}
	head.DataSize = head.DataStart + uint32(len(target))
	if len(target) > 0 {
		head.TargetCount = 1
	}
	copy(head.Name[:], name)
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, head); err != nil {
		return err
	}
	b.Write(target)
	data := b.Bytes()
	request := uintptr(3)<<30 | unsafe.Sizeof(mapperIoctl{})<<16 | 0xfd<<8 | uintptr(command)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), request, uintptr(unsafe.Pointer(&data[0]))); errno != 0 {
		return fmt.Errorf("device mapper, command %d for %s: %w", command, name, errno)
	}
	return nil
}

// makeVolume makes a linear volume of a part of a disk, as LVM does.
func makeVolume(name, disk string, offset, size int) error {
	parameters := fmt.Sprintf("%s %d\x00", disk, offset/sector)
	parameters += string(make([]byte, -len(parameters)&7))
	target := mapperTarget{Length: uint64(size / sector), Next: uint32(int(unsafe.Sizeof(mapperTarget{})) + len(parameters))}
	copy(target.Kind[:], "linear")
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, target); err != nil {
		return err
	}
	b.WriteString(parameters)
	if err := mapper(mapperCreate, name, nil); err != nil {
		return err
	}
	if err := mapper(mapperLoad, name, b.Bytes()); err != nil {
		return err
	}
	return mapper(mapperResume, name, nil)
}

// Directories on two logical volumes of one disk have the same device. A directory on another disk has another
// device.
func volumesOfOneDisk(t *testing.T) {
	volume := func(number int) blockfile.Device {
		t.Helper()
		name := fmt.Sprintf("volume%d", number)
		if err := makeVolume(name, "/dev/vdb", number*volumeSize, volumeSize); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := mapper(mapperRemove, name, nil); err != nil {
				t.Error(err)
			}
		})
		return mounted(t, fmt.Sprintf("/dev/dm-%d", number))
	}
	one, two, other := volume(0), volume(1), mounted(t, "/dev/vda")
	t.Logf("%+v, %+v, %+v", one, two, other)
	if one.Name != "vdb" || two.Name != "vdb" || len(one.Disks) != 1 || one.Disks[0] != "vdb" {
		t.Errorf("the volumes are on %+v and %+v instead of vdb", one, two)
	}
	if !one.Overlaps(two) || one.Overlaps(other) || other.Name != "vda" {
		t.Errorf("%+v, %+v and %+v", one, two, other)
	}
}

func mounted(t *testing.T, device string) blockfile.Device {
	t.Helper()
	at := t.TempDir()
	if err := unix.Mount(device, at, "ext4", 0, ""); err != nil {
		t.Fatalf("mount %s: %v", device, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	data := filepath.Join(at, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := blockfile.OpenDir(data, "/sys")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	return dir.Device
}
