// Package guest runs a test's own program as the only program of a small Linux virtual machine, the
// guest. The guest's kernel has features that this machine's kernel may not have.
//
// Problem: a machine has its block I/O controller either in cgroup v1 or in v2, and some kernels have no
// device mapper. A test of the other version needs another machine. Hardware virtualisation is often
// missing where tests run, and an image of a distribution takes minutes to boot.
//
// Choice: QEMU emulates the processor, so it needs neither special rights nor devices. The kernel is
// Debian's for clouds, which scripts/setup (or FetchEarlier) unpacks into a folder of downloads and does not install. The
// first process is a static Go program, such as the test binary itself: it makes the mounts, loads the
// modules, does its work, prints a line with its result, and turns the guest off. There is no
// shell and no other program. The guest boots in a few seconds. Its processors are about ten times
// slower than the real ones. QEMU limits the bandwidth of its disks.
//
// The line that the guest prints is the result. QEMU's exit code does not depend on it.
package guest

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"penstock/lab/debian"
	"penstock/lab/ledger"
	"penstock/lab/process"
)

// Options describe a guest.
type Options struct {
	Book *ledger.Ledger // ledger of the run to which the guest belongs
	Dir  string         // folder for the guest's files
	// Kernel is the folder into which the package of the kernel was unpacked (see Kernel and FetchEarlier).
	Kernel string
	// Program is the static program that the guest runs. Its main function must call RunIfInside first.
	Program string
	Args    []string // arguments of the program, without spaces
	Modules []string // modules to load; those of the disks, and modules that are needed by others, are added
	Disks   []Drive  // they are vda, vdb and so on
	// MemoryMB is the guest's memory in MiB. Default 1024.
	MemoryMB int
}

// Drive is a disk of a guest.
type Drive struct {
	Image          string // path of a file that contains the disk
	BytesPerSecond int64  // the disk's bandwidth; 0: as fast as possible
}

// qemu is the emulator.
const qemu = "qemu-system-x86_64"

// driverModules are the modules that every guest with disks needs.
var driverModules = []string{"virtio_pci", "virtio_blk"}

// remedy is the end of error messages about missing files.
const remedy = "run scripts/setup, which installs qemu-system-x86 and unpacks the guest's kernel"

// Kernel returns the folder with the guest's kernel, which is below the folder of downloads cache.
func Kernel(cache string) (string, error) {
	dir := filepath.Join(cache, "guest")
	if _, err := imageIn(dir); err != nil {
		return "", err
	}
	return dir, nil
}

// FetchEarlier makes sure that the kernel of Debian 11 (5.10) is below the folder of downloads cache, and returns its
// folder. If it is not there, FetchEarlier needs a Debian machine with apt-get. Two processes may fetch at the
// same time.
func FetchEarlier(ctx context.Context, cache string, progress func(format string, args ...any)) (string, error) {
	const suite, newest = "bullseye", "linux-image-cloud-amd64"
	dir, err := filepath.Abs(filepath.Join(cache, "guest-"+suite))
	if err != nil {
		return "", err
	}
	if _, err := imageIn(dir); err == nil {
		return dir, nil
	}
	progress("fetching the kernel of Debian's %s (60 MB with the lists of packages) into %s, once", suite, dir)
	err = debian.Make(ctx, dir, suite, func(p *debian.Packages, made string) error {
		needed, err := p.Dependencies(ctx, newest+"/"+suite)
		if err != nil {
			return err
		}
		for _, name := range needed {
			if strings.HasPrefix(name, "linux-image-") {
				return p.Unpack(ctx, name+"/"+suite, made)
			}
		}
		return fmt.Errorf("the package %s of %s depends on %q, none of which is a kernel", newest, suite, needed)
	})
	if err == nil {
		if _, err := imageIn(dir); err != nil {
			return "", fmt.Errorf("guest: %s has no kernel: delete the folder to fetch it again", dir)
		}
	}
	if err != nil {
		return "", fmt.Errorf("guest: fetch the kernel of %s into %s: %w", suite, dir, err)
	}
	return dir, nil
}

func imageIn(kernel string) (string, error) {
	images, err := filepath.Glob(filepath.Join(kernel, "boot/vmlinuz-*"))
	if err != nil {
		return "", err
	}
	if len(images) != 1 {
		return "", fmt.Errorf("find the guest's kernel: there are %d kernels in %s instead of 1: %s", len(images), kernel, remedy)
	}
	return images[0], nil
}

// resultLine matches the line with the guest's result.
var resultLine = regexp.MustCompile(`(?m)^penstock-guest: exit code (\d+)\r?$`)

// Run boots the guest, waits until the guest or ctx ends, and returns what the guest has printed. The error
// is nil only if the program has ended with the exit code 0.
func Run(ctx context.Context, o Options) (output string, err error) {
	if runtime.GOARCH != "amd64" {
		return "", errors.New("run a guest: the guest has an amd64 processor and runs this program, so the program must be built for amd64")
	}
	if _, err := exec.LookPath(qemu); err != nil {
		return "", fmt.Errorf("%w: %s", err, remedy)
	}
	image, err := imageIn(o.Kernel)
	if err != nil {
		return "", err
	}
	initramfs := filepath.Join(o.Dir, "initramfs")
	if err := makeInitramfs(initramfs, image, o); err != nil {
		return "", fmt.Errorf("make the guest's first files: %w", err)
	}
	memory := 1024
	if o.MemoryMB > 0 {
		memory = o.MemoryMB
	}
	argv := []string{qemu, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", fmt.Sprintf("%dM", memory), "-machine", "q35",
		"-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", image, "-initrd", initramfs,
		"-append", "console=ttyS0 quiet panic=-1 rdinit=/init " + insideVariable + "=1 -- " + strings.Join(o.Args, " ")}
	for i, d := range o.Disks {
		drive := fmt.Sprintf("file=%s,if=none,id=d%d,format=raw,cache=unsafe", strings.ReplaceAll(d.Image, ",", ",,"), i)
		if d.BytesPerSecond > 0 {
			drive += fmt.Sprintf(",throttling.bps-total=%d", d.BytesPerSecond)
		}
		argv = append(argv, "-drive", drive, "-device", fmt.Sprintf("virtio-blk-pci,drive=d%d", i))
	}
	p, err := process.Start(process.Options{Book: o.Book, Name: "guest", Log: filepath.Join(o.Dir, "guest.log")}, argv...)
	if err != nil {
		return "", err
	}
	defer p.Kill()
	result, err := p.Find(ctx, resultLine)
	raw, readErr := os.ReadFile(p.Log())
	output = strings.ReplaceAll(string(raw), "\r", "")
	if err != nil || readErr != nil {
		return output, errors.Join(fmt.Errorf("the guest has printed no result: %w", err), readErr)
	}
	if code, err := strconv.Atoi(result[1]); err != nil || code != 0 {
		return output, fmt.Errorf("the guest's program ended with the exit code %s", result[1])
	}
	return output, nil
}

// static returns an error if a program needs shared libraries, because a guest has none.
func static(program string) error {
	file, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s needs shared libraries, but the guest has none: build the program with CGO_ENABLED=0, as make does", program)
		}
	}
	return nil
}
