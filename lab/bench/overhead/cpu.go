package overhead

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the CPU time, user and system, that a process has used, threads
// that have ended included. It is the sum that /proc/PID/stat shows in ticks of
// 10 ms, read from the process's CPU clock, which has nanoseconds: an xceiver's
// whole block is some ten ticks.
func cpuTime(pid int) (time.Duration, error) {
	const schedClock = 2 // CPUCLOCK_SCHED of a whole process, as clock_getcpuclockid(3) makes it
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// compilerTime is the CPU time of a JVM's own compilers. A JVM of some minutes
// still compiles, in bursts as long as a block takes to read; one of some hours
// does not. So what they use is no part of what I/O costs.
func compilerTime(pid int) (used time.Duration, err error) {
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err != nil || !isCompiler(string(comm)) {
			continue // a thread that has ended was none: compilers stay
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(name), "schedstat"))
		if err != nil {
			return 0, err
		}
		one, err := parseSchedstat(string(stat))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		used += one
	}
	return used, nil
}

// keepCompilers is the JVM's option for their threads to stay when they are idle.
const keepCompilers = "-XX:-UseDynamicNumberOfCompilerThreads"

func isCompiler(comm string) bool {
	return strings.HasPrefix(comm, "C1 CompilerThre") || strings.HasPrefix(comm, "C2 CompilerThre")
}

// parseSchedstat reads a thread's time on a CPU, the first of its numbers.
func parseSchedstat(text string) (time.Duration, error) {
	first, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	n, err := strconv.ParseInt(first, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("no time in %q", text)
	}
	return time.Duration(n), nil
}

// peakMemory is the largest resident size that a process has had, in bytes.
func peakMemory(pid int) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := parsePeak(f)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return n, nil
}

// parsePeak reads VmHWM from a process's status.
func parsePeak(r io.Reader) (int64, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		value, ok := strings.CutPrefix(lines.Text(), "VmHWM:")
		if !ok {
			continue
		}
		number, ok := strings.CutSuffix(strings.TrimSpace(value), " kB")
		kib, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil || kib < 0 || kib > 1<<40 {
			return 0, fmt.Errorf("no size in %q", lines.Text())
		}
		return kib << 10, nil
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("no VmHWM")
}
