package overhead

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/PID/stat and /proc/stat: USER_HZ is 100 everywhere.
const tick = 10 * time.Millisecond

// family is the CPU time of a process's children, theirs, and so on, so far:
// of those that were waited for, of those that live (so many), and of those that
// ended and nobody has waited for. What a process leaves behind goes to the first
// process of its PID namespace: for that one the sum is whole. While a child comes
// or goes it may be wrong, so that only one with living 0 is a figure.
func family(pid int) (used time.Duration, living int, err error) {
	all := map[int]member{}
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, 0, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has just gone
		}
		m, err := parseStat(string(text))
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", name, err)
		}
		all[m.pid] = m
	}
	head, ok := all[pid]
	if !ok {
		return 0, 0, fmt.Errorf("there is no process %d", pid)
	}
	used = head.children
	for _, m := range all {
		if !below(all, m, pid) {
			continue
		}
		used += m.own + m.children
		if m.state != "Z" && m.state != "X" {
			living++
		}
	}
	return used, living, nil
}

// below reports whether m descends from a process.
func below(all map[int]member, m member, from int) bool {
	for range len(all) { // a number may be reused while we look
		if m.parent == from {
			return true
		}
		var ok bool
		if m, ok = all[m.parent]; !ok {
			return false
		}
	}
	return false
}

type member struct {
	pid, parent   int
	state         string
	own, children time.Duration // CPU time; children's: of those waited for
}

// parseStat reads /proc/PID/stat.
func parseStat(text string) (m member, err error) {
	const parent, utime, children, end = 1, 11, 13, 15 // fields after the name, which may hold anything
	before, _, ok := strings.Cut(text, " ")
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if !ok || len(fields) < end {
		return m, fmt.Errorf("%.60q is no process's state", text)
	}
	if m.pid, err = strconv.Atoi(before); err != nil {
		return m, err
	}
	m.state = fields[0]
	if m.parent, err = strconv.Atoi(fields[parent]); err != nil {
		return m, err
	}
	for i := utime; i < end; i++ {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil || n < 0 || n > int64(1<<58/tick) {
			return m, fmt.Errorf("no CPU time in %q", fields[i])
		}
		if i < children {
			m.own += time.Duration(n) * tick
		} else {
			m.children += time.Duration(n) * tick
		}
	}
	return m, nil
}

// machineTime is the time that the machine's CPUs have worked so far, the
// kernel's own threads and interrupts included.
func machineTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	used, err := parseMachine(string(text))
	if err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	return used, nil
}

// parseMachine adds up user, nice, system, irq and softirq; a guest's time is in
// user already.
func parseMachine(text string) (used time.Duration, err error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, fmt.Errorf("%.60q is no line of all CPUs", line)
	}
	for _, i := range []int{1, 2, 3, 6, 7} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil || n < 0 || n > int64(1<<58/tick) {
			return 0, fmt.Errorf("no time in %q", fields[i])
		}
		used += time.Duration(n) * tick
	}
	return used, nil
}
