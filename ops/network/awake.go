package network

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// awakeVariable is the environment variable that makes this program occupy a CPU. Its value is the CPU's number.
const awakeVariable = "PENSTOCK_NETWORK_AWAKE"

// occupied is what a process writes when it begins to occupy its CPU.
const occupied = "occupied\n"

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
		cmd, _, out, err := occupier(cpu)
		var end func() error
		if err == nil {
			_, end, err = together(cmd)
		}
		if err == nil {
			ends = append(ends, end)
			err = awaitOccupied(out)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("keep CPU %d awake: %w", cpu, err), stop())
		}
	}
	return stop, nil
}

// awaitOccupied waits until a process occupies its CPU. If the process fails before, awaitOccupied returns the reason.
func awaitOccupied(out io.Reader) error {
	text := make([]byte, 1024)
	n, err := out.Read(text)
	if string(text[:n]) == occupied {
		return nil
	}
	if n > 0 {
		err = errors.New(strings.TrimSpace(string(text[:n])))
	}
	return err
}

// occupier returns a command that occupies a CPU until the pipe in is closed, which also happens if this process is killed.
// The command writes occupied, or the reason why it fails, to out.
func occupier(cpu int) (cmd *exec.Cmd, in io.Closer, out io.Reader, err error) {
	own, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd = exec.Command(own)
	cmd.Env = append(os.Environ(), awakeVariable+"="+strconv.Itoa(cpu), "GOMAXPROCS=2", "GODEBUG=asyncpreemptoff=1")
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	out, err = cmd.StdoutPipe()
	cmd.Stderr = cmd.Stdout
	return cmd, in, out, err
}

// occupyIfAsked occupies a CPU until its standard input ends, if this process was started for it.
func occupyIfAsked() {
	text := os.Getenv(awakeVariable)
	if text == "" {
		return
	}
	// The loop below cannot be interrupted. A garbage collection would wait for it for ever, and then nothing else would run.
	debug.SetGCPercent(-1)
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
		fmt.Fprintln(os.Stderr, "penstock cannot keep a CPU awake:", err)
		os.Exit(1)
	}
	fmt.Print(occupied)
	var turns atomic.Uint64
	for { // until the pipe ends
		turns.Add(1)
	}
}
