package guest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// insideVariable is in the guest kernel's command line, from which it gets into the environment of
	// the first process.
	insideVariable = "PENSTOCK_GUEST"
	modulesDir     = "modules"
)

// Cgroups is where the hierarchy of cgroup v2 is mounted in a guest.
const Cgroups = "/sys/fs/cgroup"

// Tests returns a function for RunIfInside that runs the program once more, with the guest's arguments
// and the environment variable NAME=1. A main function that finds the variable runs tests.
func Tests(name string) func() int {
	return func() int {
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env = []string{name + "=1"}
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			fmt.Println("penstock-guest:", err)
			return 1
		}
		return 0
	}
}

// RunIfInside checks whether this process is the first process of a guest. If so, it mounts the kernel's
// file systems, loads the modules, calls work, prints its result, and turns the guest off.
func RunIfInside(work func() int) {
	if os.Getpid() != 1 || os.Getenv(insideVariable) == "" {
		return
	}
	code := 1
	if err := prepare(); err != nil {
		fmt.Println("penstock-guest:", err)
	} else {
		code = work()
	}
	// On a line of its own, also if the last output had no line end.
	fmt.Printf("\npenstock-guest: exit code %d\n", code)
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("penstock-guest: turn the machine off:", err)
	}
	os.Exit(code) // the kernel then panics, which ends the guest too
}

func prepare() error {
	for _, m := range []struct{ kind, at string }{
		{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/tmp"}, {"cgroup2", Cgroups},
	} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.kind, m.at, err)
		}
	}
	modules, err := filepath.Glob("/" + modulesDir + "/*") // in the order of their numbers
	if err != nil {
		return err
	}
	for _, m := range modules {
		if err := load(m); err != nil {
			return fmt.Errorf("load %s: %w", m, err)
		}
	}
	return nil
}

func load(module string) error {
	file, err := os.Open(module)
	if err != nil {
		return err
	}
	defer file.Close()
	err = unix.FinitModule(int(file.Fd()), "", 0)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}
