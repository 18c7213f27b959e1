package network

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// awakeVariable makes this program occupy a CPU, the number of which is its value.
const awakeVariable = "PENSTOCK_NETWORK_AWAKE"

// keepAwake starts a process for each CPU that this process may use. The process uses all time that nobody else wants
// (SCHED_IDLE), so the CPU never halts. stop ends the processes.
//
// Waking a halted CPU takes longer than the network does, above all in a virtual machine. A machine in use has few halted
// CPUs.
func keepAwake() (stop func() error, err error) {
	var ends []func() error
	stop = func() (err error) {
		for _, end := range ends {
			err = errors.Join(err, end())
		}
		return err
	}
	for _, cpu := range cpus() {
		cmd, _, err := occupier(cpu)
		var end func() error
		if err == nil {
			_, end, err = together(cmd)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("keep CPU %d awake: %w", cpu, err), stop())
		}
		ends = append(ends, end)
	}
	return stop, nil
}

// occupier returns a command that occupies a CPU until the pipe is closed, which also happens if this process is killed.
func occupier(cpu int) (cmd *exec.Cmd, in io.Closer, err error) {
	own, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd = exec.Command(own)
	cmd.Env = append(os.Environ(), awakeVariable+"="+strconv.Itoa(cpu), "GOMAXPROCS=2", "GODEBUG=asyncpreemptoff=1")
	in, err = cmd.StdinPipe()
	return cmd, in, err
}

// occupyIfAsked occupies a CPU until its standard input ends, if this process was started for it.
func occupyIfAsked() {
	text := os.Getenv(awakeVariable)
	if text == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the process that measures does
		os.Exit(0)
	}()
	runtime.LockOSThread()
	cpu, err := strconv.Atoi(text)
	if err == nil {
		err = bind(cpu)
	}
	if err == nil {
		err = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "penstock keeps a CPU awake:", err)
		os.Exit(1)
	}
	var turns atomic.Uint64
	for { // until the pipe ends
		turns.Add(1)
	}
}
