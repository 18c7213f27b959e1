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
	// insideVariable is an environment variable of the first process. The kernel takes it from its command
	// line.
	insideVariable = "PENSTOCK_GUEST"
	modulesDir     = "modules"
)

// Cgroups is where the hierarchy of cgroup v2 is mounted in a guest.
const Cgroups = "/sys/fs/cgroup"

// Tests returns a function for RunIfInside. The function runs the program a second time, with the guest's
// arguments and the environment variable name=1, and returns its exit code. A main function that finds the
// variable should run the tests.
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

// RunIfInside does nothing unless this process is the first process of a guest. In a guest, it mounts the
// kernel's file systems, loads the modules, calls work, prints the exit code that work returns, and turns the
// guest off.
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
	// The first line end puts the result on a line of its own, also if the last output had none.
	fmt.Printf("\npenstock-guest: exit code %d\n", code)
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("penstock-guest: turn the machine off:", err)
	}
	os.Exit(code) // the kernel then panics, which also ends the guest
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
