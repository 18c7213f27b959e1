package monitor

import (
	"path/filepath"
	"strconv"
	"strings"
)

// Queue holds the settings of the kernel's block layer for a device. A value that the kernel does
// not report is empty or -1.
type Queue struct {
	Scheduler   string   // in force: none, mq-deadline, bfq, kyber
	Schedulers  []string // to choose from
	Requests    int64    // nr_requests: size of the kernel's queue
	ReadaheadKB int64    // read_ahead_kb
	RequestKB   int64    // max_sectors_kb: the largest request
}

// ReadQueue reads a device's queue settings from sysfs.
func ReadQueue(sysfs, name string) Queue {
	dir := filepath.Join(sysfs, "block", name, "queue")
	number := func(file string) int64 {
		text, err := readSmall(filepath.Join(dir, file))
		if err != nil {
			return -1
		}
		v, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err != nil {
			return -1
		}
		return v
	}
	q := Queue{Requests: number("nr_requests"), ReadaheadKB: number("read_ahead_kb"), RequestKB: number("max_sectors_kb")}
	if text, err := readSmall(filepath.Join(dir, "scheduler")); err == nil {
		q.Scheduler, q.Schedulers = ParseScheduler(text)
	}
	return q
}

// ParseScheduler reads queue/scheduler: the names, with the scheduler in force in brackets. A
// device without a choice has "none" without brackets.
func ParseScheduler(text string) (inForce string, all []string) {
	for _, name := range strings.Fields(text) {
		if n, ok := strings.CutPrefix(name, "["); ok {
			name = strings.TrimSuffix(n, "]")
			inForce = name
		}
		all = append(all, name)
	}
	if inForce == "" && len(all) == 1 {
		inForce = all[0]
	}
	return inForce, all
}
